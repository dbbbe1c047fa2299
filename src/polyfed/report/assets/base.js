"use strict";
// What all parts share: the numbers, what is hidden, how values are written, how a chart looks.
const DATA = JSON.parse(document.getElementById("data").textContent);
const METHODS = DATA.methods;
const COLOURS = 8;
const hidden = new Set();
const $ = (id) => document.getElementById(id);
const narrow = () => window.innerWidth < 720;

// Plotly reads a few tags in its labels; a name from the data must come out as it was written.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
const title = (text) => text[0].toUpperCase() + text.slice(1);
// A name on two lines at most, for the axis of a chart.
function wrapped(text, length) {
  const at = text.length > length ? text.lastIndexOf(" ", length) : -1;
  return at < 0 ? plain(cut(text, length)) : `${plain(text.slice(0, at))}<br>${plain(cut(text.slice(at + 1), length))}`;
}
const minus = (text) => text.replace(/-/g, "−");
const there = (value) => value !== null && value !== undefined;

function significant(value, digits) {
  if (!there(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return minus(value.toExponential(digits - 1));
  if (size >= 10 ** (digits - 1)) return minus(value.toFixed(0));
  return minus(size === 0 ? "0" : value.toPrecision(digits));
}
const percent = (share, decimals = 1) => (there(share) ? minus((100 * share).toFixed(decimals)) + "%" : "–");
const valueText = (value, share = DATA.share) => (share ? percent(value) : significant(value, 4));
const largest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const smallest = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const count = (value) => (there(value) ? Math.round(value).toLocaleString("en") : "–");

function bitUnit(largest) {
  for (const [size, unit] of [[1e12, "Tbit"], [1e9, "Gbit"], [1e6, "Mbit"], [1e3, "kbit"]]) if (largest >= size) return [size, unit];
  return [1, "bit"];
}

// Going alone as a reference, unless a method that is shown is exactly that.
function alone() {
  const same = (values) => values && values.every((value, c) => value === DATA.alone[c]);
  return DATA.alone && !METHODS.some((method, i) => !hidden.has(i) && same(method.values.deployed)) ? DATA.alone : null;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (index) => css("--m" + (index % COLOURS));
const dash = (index) => ["solid", "dash", "dot", "dashdot"][Math.floor(index / COLOURS) % 4];
const SYMBOLS = [["circle", "●"], ["square", "■"], ["diamond", "◆"], ["triangle-up", "▲"], ["cross", "✚"], ["x", "✖"], ["star", "★"], ["triangle-down", "▼"]];
const symbol = (index) => SYMBOLS[index % COLOURS][0];
function faint(hex, opacity) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
}

function layout(extra) {
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--soft") };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font, margin: { l: 8, r: 10, t: narrow() ? 8 : 26, b: 8 },
    hoverlabel: { bgcolor: css("--sheet"), bordercolor: css("--line"), font: { ...font, color: css("--ink") }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") },
    dragmode: narrow() ? false : "zoom", showlegend: false, autosize: true,
  };
  return { ...base, ...extra };
}
function axis(title, extra = {}) {
  return {
    title: { text: title, standoff: 8, font: { size: 12.5, color: css("--soft") } },
    gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false,
    automargin: true, fixedrange: narrow(), nticks: narrow() ? 5 : 7, ...extra,
  };
}
const valueAxis = (title, share, extra = {}) => axis(title, share ? { tickformat: ",.2~%", ...extra } : extra);

function show(chart, traces, shape, height) {
  const bare = narrow() || /^(move|fair)-/.test(chart.id);
  const config = {
    displaylogo: false, responsive: true, showTips: false, displayModeBar: bare ? false : "hover",
    modeBarButtons: [["toImage", "resetScale2d"]], toImageButtonOptions: { scale: 2, filename: chart.id },
  };
  chart.style.height = height + "px";
  return Plotly.react(chart, traces, { ...shape, height }, config);
}

// What lines and dots stand for, under a chart; a method's entry does what its button does. [name, method or -1, dash]
function drawLegend(box, entries) {
  box.replaceChildren(...entries.map(([name, i, style]) => {
    const entry = document.createElement("button"), mark = document.createElement("i");
    entry.type = "button";
    entry.title = name;
    mark.style.color = i < 0 ? (style === "dots" ? "var(--soft)" : "var(--alone)") : `var(--m${i % COLOURS})`;
    if (style !== "dots") mark.style.borderTop = `2px ${{ solid: "solid", dot: "dotted" }[style] || "dashed"}`;
    if (i >= 0 || style === "dots") mark.textContent = i < 0 ? "●" : SYMBOLS[i % COLOURS][1];
    if (i >= 0) entry.onclick = () => toggle(i);
    entry.setAttribute("aria-pressed", String(!hidden.has(i)));
    entry.append(mark, document.createElement("span"));
    entry.lastChild.textContent = name;
    return entry;
  }));
}
