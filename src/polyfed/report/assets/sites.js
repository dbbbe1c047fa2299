// The table of clients for one method: sortable by any column, searchable, drawn in portions, each gain with its interval.

const PORTION = 200, DRAWN = 1000;
const TINT = { gains: "--good", loses: "--bad", "cannot tell": "--soft" };
let sortBy = 0, ascending = true, portion = PORTION;

// How many decimals show two significant digits.
const twoDigits = (value) => (value ? Math.min(Math.max(1 - Math.floor(Math.log10(Math.abs(value))), 0), 12) : 0);
const gainText = (method, value, sign = true, digits = sign) => {
  if (!there(value)) return "–";
  const scaled = DATA.share ? 100 * value : value;
  const decimals = DATA.share ? 1 : method.decimals, exact = scaled.toFixed(Math.max(decimals, digits ? twoDigits(scaled) : 0));
  const text = Number(exact) === 0 ? (0).toFixed(decimals) : exact;  // what rounding leaves of a zero
  return (sign && Number(text) > 0 ? "+" : "") + minus(text);
};
const rangeText = (method, c) => there(method.low[c]) && there(method.high[c]) ? `${gainText(method, method.low[c], false)} to ${gainText(method, method.high[c], false)}` : "no interval";
const gainUnit = DATA.share ? "points" : DATA.label;
const selected = () => METHODS[Number($("site-method").value)];

// What the intervals of a method need, zero included. A few that are far wider than the others do not set the scale.
function gainRange(method) {
  const ends = [...method.low, ...method.high, 0].filter(there), gains = [...method.gains, 0].filter(there);
  const most = 2 * quantile(ends.map(Math.abs).sort((a, b) => a - b), 0.8);
  const cut = (value) => (most > 0 ? Math.max(-most, Math.min(most, value)) : value);
  return [smallest([...ends.map(cut), ...gains]), largest([...ends.map(cut), ...gains])];
}

function siteColumns(method) {
  const number = (title, values, text, small) => ({ title, values, text: (c) => text(values[c]), small });
  const columns = [{ title: "Client", values: DATA.clients, text: (c) => DATA.clients[c] }];
  const whole = method.rows.all.some(there), rows = whole ? method.rows.all : method.rows.train;
  columns.push(number(whole ? "Rows" : "Train rows", rows, count, (c) => (there(method.rows.test[c]) ? `${count(method.rows.test[c])} test` : "")));
  if (method.positives.some(there)) columns.push(number("Positives", method.positives, percent));
  for (const [model, title] of [["alone", "Alone"], ["deployed", "Together"]])
    if (method.values[model]) columns.push(number(title, method.values[model], (value) => valueText(value)));
  if (method.gains.some(there)) {
    const [low, high] = gainRange(method);
    columns.push(number(`Gain, ${gainUnit}`, method.gains, (gain) => gainText(method, gain), (c) => (there(method.gains[c]) ? rangeText(method, c) : "")));
    columns.push({ title: "95% interval", values: method.gains, draw: (c) => whisker(method, c, low, high), scale: [low, high] });
    const order = method.verdicts.map((verdict) => ({ gains: 2, "cannot tell": 1, loses: 0 })[verdict] ?? null);
    columns.push({
      title: "Verdict", values: order, text: (c) => method.verdicts[c] ?? "–", tint: (c) => TINT[method.verdicts[c]],
      small: (c) => (method.verdicts[c] !== "cannot tell" ? "" : there(method.detectable[c]) ? `nothing below ${gainText(method, method.detectable[c], false, true)}` : "no difference to be seen"),
    });
  }
  return columns;
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A bar from the low to the high end of the interval, a dot at the gain, a line at zero. A bar that leaves the scale fades.
function whisker(method, c, low, high) {
  const box = element("span", "whisker"), at = (value) => `${(100 * (value - low)) / (high - low || 1)}%`;
  const place = (className, from, to) => {
    const part = element("i", className);
    part.style.left = at(from);
    if (there(to)) part.style.width = `${(100 * (to - from)) / (high - low || 1)}%`;
    box.append(part);
  };
  place("zero", 0);
  if (there(method.low[c]) && there(method.high[c])) {
    const leaves = (method.low[c] < low ? " before" : "") + (method.high[c] > high ? " beyond" : "");
    place(`reach${leaves}`, Math.max(low, method.low[c]), Math.min(high, method.high[c]));
  }
  if (there(method.gains[c])) place("dot", method.gains[c]);
  box.style.setProperty("--c", `var(${TINT[method.verdicts[c]] || "--soft"})`);
  return box;
}

function drawSites() {
  const method = selected(), columns = siteColumns(method);
  if (sortBy >= columns.length) { sortBy = 0; ascending = true; }
  const head = document.createElement("tr");
  columns.forEach((column, at) => {
    const cell = element("th"), button = element("button", "", column.title);
    cell.scope = "col";
    if (at === sortBy) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    button.type = "button";
    button.onclick = () => { ascending = at === sortBy ? !ascending : at === 0; sortBy = at; drawSites(); };
    cell.append(button);
    if (column.scale) { cell.className = "drawn"; cell.append(scaleOf(method, column.scale)); }
    head.append(cell);
  });
  const wanted = $("find").value.trim().toLowerCase();
  const known = DATA.clients.map((_, c) => c).filter((c) => DATA.clients[c].toLowerCase().includes(wanted));
  const key = columns[sortBy].values, sign = ascending ? 1 : -1;
  const order = sortBy === 0 ? (a, b) => sign * key[a].localeCompare(key[b], "en", { numeric: true }) : (a, b) => sign * (key[a] - key[b]);
  known.sort((a, b) => (there(key[b]) - there(key[a])) || (there(key[a]) ? order(a, b) : 0) || a - b);
  const table = $("client-table");
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...known.slice(0, portion).map((c) => siteRow(columns, c)));
  const shown = Math.min(portion, known.length);
  const noun = known.length === 1 ? "client" : "clients";
  $("count").textContent = shown < known.length ? `${count(shown)} of ${count(known.length)} clients shown` : `${count(known.length)} ${noun}`;
  $("more").hidden = shown === known.length;
  table.parentNode.classList.toggle("tall", known.length > 30);
  const judged = method.gains.some(there);
  $("sites-text").textContent = `${METHODS.length > 1 ? `${method.label}: ${DATA.split}` : title(DATA.split)} ${DATA.label} of each client`
    + (judged ? ", alone and together; a gain above zero means that it is better off together. The bar is the 95% interval of each, and fades where it goes on; the verdict allows for their number too, so it is stricter." : ".");
}

// The scale of the bars: its ends, and zero where that is not too close to one of them.
function scaleOf(method, [low, high]) {
  const scale = element("span", "scale"), at = (value) => (value - low) / (high - low || 1);
  for (const value of [low, high, ...(at(0) > 0.25 && at(0) < 0.75 ? [0] : [])]) {
    const tick = element("i", "", value === 0 ? "0" : gainText(method, value));
    tick.style.left = `${100 * at(value)}%`;
    scale.append(tick);
  }
  return scale;
}

function siteRow(columns, c) {
  const line = element("tr");
  columns.forEach((column, at) => {
    const cell = element(at === 0 ? "th" : "td", column.draw ? "drawn" : "", column.draw ? undefined : column.text(c));
    if (at === 0) { cell.scope = "row"; cell.title = DATA.clients[c]; }
    else cell.dataset.label = column.title;
    if (column.draw) cell.append(column.draw(c));
    if (column.tint?.(c)) { cell.style.color = `var(${column.tint(c)})`; cell.classList.add("verdict"); }
    const note = column.small?.(c);
    if (note) cell.append(" ", element("small", "", note));
    line.append(cell);
  });
  return line;
}

// Many clients at a glance: sorted by gain, each with its interval, in the colour of its verdict.
function drawGains() {
  const method = selected();
  const order = method.gains.map((gain, c) => [gain, c]).filter(([gain]) => there(gain)).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  $("gain-figure").hidden = order.length <= 30;
  if (order.length <= 30) return;
  const step = Math.max(1, order.length / DRAWN), scale = DATA.share ? 100 : 1;
  const places = [...Array(Math.floor(order.length / step)).keys()].map((i) => Math.floor(i * step));
  const traces = Object.keys(TINT).flatMap((verdict) => {
    const own = places.filter((at) => method.verdicts[order[at][1]] === verdict), tint = css(TINT[verdict]);
    if (!own.length) return [];
    const client = (at) => order[at][1], split = (values) => own.flatMap((at, i) => values(at, i));
    const reach = {
      mode: "lines", x: split((at) => [at + 1, at + 1, null]), hoverinfo: "skip", line: { color: faint(tint, 0.45), width: 1 },
      y: split((at) => [method.low[client(at)], method.high[client(at)]].map((end) => (there(end) ? scale * end : null)).concat(null)),
    };
    const text = own.map((at) => clientHover(method, client(at)));
    return [{ ...reach, meta: -1, showlegend: false }, {
      mode: "markers", x: own.map((at) => at + 1), y: own.map((at) => scale * order[at][0]), meta: -1, showlegend: true,
      name: `${verdict} (${count(method.verdicts.filter((one) => one === verdict).length)})`,
      marker: { color: tint, size: own.length > 300 ? 3 : 5 }, text, hovertemplate: "%{text}<extra></extra>",
    }];
  });
  const side = axis(`Gain, ${DATA.share ? "points of " : ""}${DATA.label}`, { zeroline: true, zerolinecolor: css("--soft"), zerolinewidth: 1, tickformat: ",~g" });
  const few = step > 1 ? `, ${count(places.length)} of them drawn` : "";
  const top = { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom", font: { size: 12.5, color: css("--ink") }, itemsizing: "constant", itemclick: false, itemdoubleclick: false };
  const shape = { showlegend: true, legend: top, hovermode: "closest", xaxis: axis(`Clients, largest gain first${few}`, { showgrid: false, range: [0, order.length + 1] }), yaxis: side };
  show($("gain-chart"), traces, layout(shape), narrow() ? 280 : 320);
}
function clientHover(method, c) {
  const rows = `${count(method.rows.train[c])} train rows, ${count(method.rows.test[c])} test rows`;
  const both = `together ${valueText(method.values.deployed[c])}, alone ${valueText(method.values.alone?.[c])}`;
  return `<b>${plain(cut(DATA.clients[c], 40))}</b><br>${gainText(method, method.gains[c])} (${rangeText(method, c)})<br>${both}<br>${rows}`;
}
