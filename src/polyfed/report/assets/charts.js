// The charts. Each function draws from the state (hidden methods, selectors, theme) and can be called again at any time.

const isShare = (key) => key.endsWith("_accuracy");

function curveTraces(option, horizontal, finish, before) {
  const traces = [];
  METHODS.forEach((method, i) => {
    const curve = method.curves[option.key];
    if (!curve) return;
    let x = horizontal(method), y = curve.mean, low = curve.low, high = curve.high;
    const still = finish !== null && !x.some((at) => at > 0);
    if (still) { // Nothing was sent: the end result as a level to compare with.
      const last = (values) => values && values.findLast(there);
      x = [0, finish];
      [y, low, high] = [y, low, high].map((values) => values && [last(values), last(values)]);
    }
    const visible = hidden.has(i) ? "legendonly" : true;
    const common = { x, meta: i, legendgroup: "m" + i, visible };
    if (low && !still) {
      const edge = { ...common, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
      traces.push({ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faint(colour(i), 0.16) });
    }
    const few = x.length <= 30;
    traces.push({
      ...common, y, name: plain(cut(method.label, 28)), mode: few && !still ? "lines+markers" : "lines",
      line: { color: colour(i), width: 2.2, dash: still ? "dot" : dash(i) }, marker: { color: colour(i), size: 5, symbol: symbol(i) },
      text: y.map((value) => valueText(value, isShare(option.key))),
      hovertemplate: (still ? "%{text}, nothing sent" : before + "%{text}") + "<extra>" + plain(cut(method.label, 28)) + "</extra>",
    });
  });
  return traces;
}

function drawCurves() {
  const option = DATA.options[$("curve").selectedIndex];
  $("curves").hidden = !option;
  if (!option) return;
  const share = isShare(option.key);
  const log = $("log").checked ? { type: "log" } : {};
  const vertical = () => valueAxis("", share, { ...log, exponentformat: "power" });
  const going = option.key === `deployed_${DATA.split}_${DATA.metric}` ? level(alone()) : null;

  const rounds = (method) => method.axes.round;
  const last = Math.max(1, largest(METHODS.flatMap(rounds)));
  const which = $("bits").value;
  const raw = ({ axes: { bits_up: up, bits_down: down } }) => (which === "both" ? up.map((bits, i) => bits + down[i]) : which === "up" ? up : down);
  const most = Math.max(0, largest(METHODS.flatMap(raw)));
  $("by-bits").parentNode.hidden = most === 0;
  const [height, below] = legendBelow($("by-round"), METHODS.map((method) => method.label).concat(going === null ? [] : "Alone"));
  const first = curveTraces(option, rounds, null, "");
  const byRound = layout({ ...below, hovermode: "x unified", xaxis: axis("Round", { range: [0, last * 1.01] }), yaxis: vertical() });
  show($("by-round"), first.concat(aloneTrace(going, last)), byRound, height);

  const [size, unit] = bitUnit(most);
  const end = most / size;
  const second = curveTraces(option, (method) => raw(method).map((bits) => bits / size), end, `%{x:.3~g} ${unit}: `);
  const words = { up: "Sent up by all clients", down: "Sent down to all clients", both: "Sent up and down, all clients" }[which];
  const byBits = layout({ ...below, hovermode: "closest", xaxis: axis(`${words} (${unit})`, { range: [0, end * 1.01] }), yaxis: vertical() });
  if (most > 0) show($("by-bits"), second.concat(aloneTrace(going, end)), byBits, height);

  const silent = METHODS.some((method) => !raw(method).some((bits) => bits > 0));
  $("curve-note").textContent = [
    `${option.name}, mean over ${DATA.over}.`,
    METHODS.some((method) => method.seeds > 1) ? "Bands span the seeds." : "",
    going === null ? "" : "The grey line is going alone.",
    most === 0 ? "No bits were sent." : silent ? "A dotted level is a method that sends nothing." : "",
  ].filter(Boolean).join(" ");
}

// A legend under the plot, in one row or in as many columns as fit, and the chart's height with it.
function legendBelow(chart, names) {
  const plot = narrow() ? 240 : 285;
  if (METHODS.length < 2) return [plot + 60, {}];
  const widths = names.map((name) => 8 * Math.min(28, name.length) + 50), room = chart.clientWidth - 60;
  const oneRow = widths.reduce((a, b) => a + b) <= room;
  const rows = oneRow ? 1 : Math.ceil(names.length / Math.max(1, Math.floor(room / largest(widths))));
  const legend = {
    orientation: "h", x: 0, xanchor: "left", y: -52 / plot, yanchor: "top", maxheight: 1000, font: { size: 12.5, color: css("--ink") },
    ...(oneRow ? {} : { entrywidth: largest(widths) - 44 }),
  };
  return [plot + 64 + 29 * rows, { showlegend: true, legend }];
}

function level(values) {
  const known = (values || []).filter(there);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}
function aloneTrace(value, end) {
  if (value === null) return [];
  return [{
    x: [0, end], y: [value, value], mode: "lines", name: "Alone", meta: -1, line: { color: css("--alone"), width: 1.6, dash: "dash" },
    text: [valueText(value), valueText(value)], hovertemplate: "%{text}<extra>Alone</extra>",
  }];
}

// A sorted profile per method: named bars while names fit, thin bars up to 200 clients, an area beyond.
function gainOrder(method) {
  return method.gains.map((gain, c) => [gain, c]).filter(([gain]) => there(gain)).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
}
function clientHover(method, c) {
  const rows = `${count(method.rows.train[c])} train rows, ${count(method.rows.test[c])} test rows`;
  const both = `deployed ${valueText(method.values.deployed[c])}, alone ${valueText(method.values.alone[c])}`;
  return `<b>${plain(cut(DATA.clients[c], 40))}</b><br>${gainText(method.gains[c])}${gainUnit}<br>${both}<br>${rows}`;
}
function drawGains() {
  const orders = METHODS.map(gainOrder);
  const drawn = METHODS.map((_, i) => i).filter((i) => orders[i].length && orders[i].some(([gain]) => gain !== 0));
  $("gains").hidden = drawn.length === 0;
  if (!drawn.length) return;
  const all = drawn.flatMap((i) => orders[i].map(([gain]) => gain));
  const low = Math.min(0, smallest(all)), high = Math.max(0, largest(all)), room = 0.06 * (high - low);
  const range = [low - (low < 0 ? room : 0), high + (high > 0 ? room : 0)].map((edge) => (DATA.share ? 100 * edge : edge));
  const unit = DATA.share ? "Gain, points of " + DATA.metric : "Gain, " + DATA.metric + " saved";
  const most = largest(orders.map((order) => order.length));
  const where = most <= 30 ? "To the right of zero" : "Above zero";
  const what = most <= 200 ? "A bar is one client" : "A point of a line is one client";
  const against = `the ${DATA.split} ${DATA.metric} of what it deploys against that of its own model trained alone`;
  const scale = drawn.length > 1 ? " All panels share one scale." : "";
  $("gains-text").textContent = `${what}: ${against}${DATA.share ? ", in percentage points" : ""}. ${where}, the client is better off.${scale}`;
  const margin = { l: 8, r: 10, t: 6, b: 8 };
  for (const i of drawn) facet(i).hidden = hidden.has(i); // All panels first: their number decides how wide each one is.
  for (const i of drawn) {
    const method = METHODS[i], order = orders[i], box = facet(i);
    const better = order.filter(([gain]) => gain > 0).length;
    box.querySelector("small").textContent = `${count(better)} of ${count(order.length)} better off`;
    if (box.hidden) { for (const trace of box.lastChild.data || []) trace.visible = false; continue; }
    const gains = order.map(([gain]) => (DATA.share ? 100 * gain : gain));
    const text = order.map(([, c]) => clientHover(method, c));
    const place = order.map((_, at) => at + 1);
    const base = { meta: i, hovertext: text, hovertemplate: "%{hovertext}<extra></extra>", visible: true };
    const zero = { zeroline: true, zerolinecolor: css("--soft"), zerolinewidth: 1, range, tickformat: ",~g" };
    const fill = gains.map((gain) => (gain < 0 ? faint(colour(i), 0.45) : colour(i)));
    const marker = { color: fill, line: { width: gains.map((gain) => (gain < 0 ? 1 : 0)), color: colour(i) } };
    if (order.length <= 30) {
      const names = order.map(([, c]) => plain(cut(DATA.clients[c], narrow() ? 14 : 18)));
      const side = axis("", { tickmode: "array", tickvals: place, ticktext: names, autorange: "reversed", showgrid: false, nticks: 0 });
      const bars = { ...base, type: "bar", orientation: "h", x: gains, y: place, marker };
      show(box.lastChild, [bars], layout({ bargap: 0.28, margin, xaxis: axis(unit, zero), yaxis: side }), 66 + 21 * Math.max(order.length, 2));
    } else if (order.length <= 200) {
      const bars = { ...base, type: "bar", x: place, y: gains, marker };
      const bottom = axis("Clients, best gain first", { showgrid: false });
      show(box.lastChild, [bars], layout({ bargap: 0.15, margin, xaxis: bottom, yaxis: axis(unit, zero) }), 300);
    } else {
      const look = { line: { color: colour(i), width: 2 }, fill: "tozeroy", fillcolor: faint(colour(i), 0.22) };
      const area = { ...base, ...look, mode: "lines", x: place.map((at) => at / order.length), y: gains };
      const bottom = axis("Share of clients, best gain first", { tickformat: ".0%", showgrid: false });
      show(box.lastChild, [area], layout({ margin, xaxis: bottom, yaxis: axis(unit, zero) }), 300);
    }
  }
}
function facet(i, kind = "gain") {
  const old = $(`${kind}-${i}`);
  if (old) return old.parentNode;
  const box = document.createElement("figure"), caption = document.createElement("figcaption"), chart = document.createElement("div");
  const swatch = document.createElement("i");
  swatch.className = "swatch";
  swatch.style.setProperty("--c", `var(--m${i % COLOURS})`);
  const name = document.createElement("span");
  name.textContent = name.title = METHODS[i].label;
  caption.append(swatch, name, document.createElement("small"));
  chart.className = "chart";
  chart.id = `${kind}-${i}`;
  box.append(caption, chart);
  $(`${kind}-charts`).append(box);
  return box;
}

function boxTrace(name, values, tint, place, meta) {
  const known = values.map((value, c) => [value, c]).filter(([value]) => there(value));
  const few = known.length <= 200;
  return {
    type: "box", orientation: "h", x: known.map(([value]) => value), y: known.map(() => place), name: plain(name), meta, width: 0.5,
    boxpoints: few ? "all" : "outliers", jitter: 0.5, pointpos: 0, marker: { color: tint, size: few ? 5 : 3, opacity: 0.65 },
    line: { color: tint, width: 1.6 }, fillcolor: faint(tint, 0.14), hoveron: few ? "boxes+points" : "boxes",
    text: known.map(([value, c]) => `${plain(cut(DATA.clients[c], 40))}: ${valueText(value)}`), hovertemplate: "%{text}<extra></extra>",
  };
}
function drawBoxes() {
  const model = $("model").value;
  const lines = METHODS.map((method, i) => [method, i]).filter(([method, i]) => method.values[model] && !hidden.has(i));
  const traces = lines.map(([method, i], at) => boxTrace(method.label, method.values[model], colour(i), at, i));
  const names = lines.map(([method]) => method.label);
  const reference = alone();
  if (reference && model !== "alone") {
    traces.push(boxTrace("Alone", reference, css("--alone"), names.length, -1));
    names.push("Alone");
  }
  const labels = { tickmode: "array", tickvals: names.map((_, at) => at), ticktext: names.map((name) => plain(cut(name, narrow() ? 14 : 24))) };
  const side = axis("", { ...labels, range: [names.length - 0.4, -0.6], showgrid: false, nticks: 0 });
  const title = `${DATA.split[0].toUpperCase()}${DATA.split.slice(1)} ${DATA.metric} of a client`;
  show($("boxes"), traces, layout({ xaxis: valueAxis(title, DATA.share), yaxis: side, hovermode: "closest" }), 86 + 62 * Math.max(1, names.length));
}

function drawOwn() {
  const lines = METHODS.map((method, i) => [method, i]).filter(([method]) => method.own_share.filter(there).length > 1);
  const mixes = lines.some(([method]) => method.own_share.some((own) => there(own) && own > 0 && own < 1));
  $("own").hidden = !mixes;  // all or nothing of one's own says no more than the method's name
  if (!mixes) return;
  const sizes = new Set(lines.flatMap(([method]) => method.rows.train.filter(there)));
  const bySize = sizes.size >= 3;
  const traces = lines.map(([method, i]) => {
    const known = method.own_share.map((own, c) => [own, c, method.rows.train[c]])
      .filter(([own, , rows]) => there(own) && (!bySize || there(rows)));
    known.sort((a, b) => b[0] - a[0]);
    return {
      mode: "markers", meta: i, visible: hidden.has(i) ? "legendonly" : true, name: plain(cut(method.label, 28)),
      x: known.map(([, , rows], at) => (bySize ? rows : at + 1)), y: known.map(([own]) => own),
      marker: { color: colour(i), symbol: symbol(i), size: known.length > 200 ? 4 : 8, opacity: known.length > 200 ? 0.5 : 0.8 },
      text: known.map(([own, c, rows]) => `<b>${plain(cut(DATA.clients[c], 40))}</b><br>own share ${percent(own)}<br>${count(rows)} train rows`),
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  const wide = bySize && largest([...sizes]) / Math.max(1, smallest([...sizes])) > 20;
  const ticks = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  const logarithmic = { type: "log", tickmode: "array", tickvals: ticks, ticktext: ticks.map(count) };
  const bottom = axis(bySize ? "Train rows of the client" : "Clients, largest share first", wide ? logarithmic : {});
  const [height, below] = legendBelow($("own-chart"), lines.map(([method]) => method.label));
  const side = axis("Own share", { tickformat: ".0%", range: [-0.04, 1.04] });
  show($("own-chart"), traces, layout({ ...below, showlegend: lines.length > 1, hovermode: "closest", xaxis: bottom, yaxis: side }), height);
}
