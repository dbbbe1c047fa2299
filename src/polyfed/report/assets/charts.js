// The charts. Each function draws from the state (hidden methods, selectors, theme) and can be called again at any time.

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
      text: y.map((value) => valueText(value, option.share)),
      hovertemplate: (still ? "%{text}, nothing sent" : before + "%{text}") + "<extra>" + plain(cut(method.label, 28)) + "</extra>",
    });
  });
  return traces;
}

function drawCurves() {
  const option = DATA.options[$("curve").selectedIndex];
  $("curves").hidden = !option;
  if (!option) return;
  const log = $("log").checked ? { type: "log" } : {};
  const vertical = () => valueAxis(option.axis, option.share, { ...log, exponentformat: "power" });
  const going = option.key === `deployed_${DATA.split}_${DATA.metric}` ? level(alone()) : null;

  const rounds = (method) => method.axes.round;
  const last = Math.max(1, largest(METHODS.flatMap(rounds)));
  const which = $("against").value, time = which === "seconds";
  const raw = ({ axes }) => (which === "both" ? axes.bits_up.map((bits, i) => bits + axes.bits_down[i]) : axes[which]);
  const most = Math.max(0, largest(METHODS.flatMap(raw)));
  $("by-cost").parentNode.hidden = most === 0;
  const height = narrow() ? 300 : 345;
  const first = curveTraces(option, rounds, null, "");
  const byRound = layout({ hovermode: "x unified", xaxis: axis("Rounds", { range: [0, last * 1.01] }), yaxis: vertical() });
  show($("by-round"), first.concat(aloneTrace(going, last)), byRound, height);

  const [size, unit] = time ? [1, "s"] : bitUnit(most);
  const end = most / size;
  const second = curveTraces(option, (method) => raw(method).map((amount) => amount / size), end, `%{x:.3~g} ${unit}: `);
  const words = { bits_up: "Sent up by all clients", bits_down: "Sent down to all clients", both: "Sent up and down, all clients", seconds: "Time" }[which];
  const byCost = layout({ hovermode: "closest", xaxis: axis(`${words} (${unit})`, { range: [0, end * 1.01] }), yaxis: vertical() });
  $("by-cost-title").textContent = time ? "Against time" : "Against bits";
  if (most > 0) show($("by-cost"), second.concat(aloneTrace(going, end)), byCost, height);

  const entries = METHODS.map((method, i) => [method.label, i, dash(i)]).filter(([, i]) => METHODS[i].curves[option.key]);
  drawLegend($("curve-legend"), entries.concat(going === null ? [] : [["Alone", -1, "dash"]]));
  const silent = METHODS.some((method) => !raw(method).some((amount) => amount > 0));
  $("curve-note").textContent = [
    `${option.name}, mean over ${DATA.over}.`,
    METHODS.some((method) => method.runs > 1) ? "Bands span the runs." : "",
    going === null ? "" : "The grey line is going alone.",
    most === 0 ? "No bits were sent." : silent && !time ? "A dotted level is a method that sends nothing." : "",
    DATA.options.some((one) => one.key === `deployed_${DATA.split}_${DATA.metric}`) ? "" : `The ${DATA.label} was measured at the end only.`,
  ].filter(Boolean).join(" ");
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

// A panel of its own for a method.
function facet(i, kind) {
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

// The value below which this share of sorted values lies, between neighbours in proportion.
function quantile(sorted, share) {
  const at = share * (sorted.length - 1), below = Math.floor(at);
  return sorted[below] + (at - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
}
// A box from quartile to quartile with the median, whiskers to the last value within 1.5 boxes, and a dot for each client,
// or for those beyond the whiskers where there are many.
function boxTraces(name, values, tint, place, meta) {
  const known = values.map((value, c) => [value, c]).filter(([value]) => there(value));
  const sorted = known.map(([value]) => value).sort((a, b) => a - b);
  if (!sorted.length) return [];
  const [low, middle, high] = [0.25, 0.5, 0.75].map((share) => quantile(sorted, share)), reach = 1.5 * (high - low);
  const least = sorted.find((value) => value >= low - reach), most = sorted.findLast((value) => value <= high + reach);
  const few = known.length <= 200, dots = few ? known : known.filter(([value]) => value < least || value > most);
  const text = `<b>${plain(name)}</b><br>half of the clients: ${valueText(low)} to ${valueText(high)}<br>median ${valueText(middle)}`;
  const [top, bottom] = [place - 0.25, place + 0.25], shared = { name: plain(name), meta };
  const rectangle = [[low, top], [middle, top], [middle, bottom], [middle, top], [high, top], [high, bottom], [low, bottom], [low, top]];
  const whiskers = [[null, null], [least, place], [low, place], [null, null], [high, place], [most, place]];
  return [
    {
      ...shared, mode: "lines", fill: "toself", fillcolor: faint(tint, 0.14), line: { color: tint, width: 1.6 }, hoveron: "points", hovertemplate: `${text}<extra></extra>`,
      x: [...rectangle, ...whiskers].map(([x]) => x), y: [...rectangle, ...whiskers].map(([, y]) => y),
    },
    {
      ...shared, mode: "markers", marker: { color: tint, size: few ? 5 : 3, opacity: 0.65 }, hovertemplate: "%{text}<extra></extra>",
      x: dots.map(([value]) => value), y: dots.map(([, c]) => place + 0.4 * (((c * 0.618034) % 1) - 0.5)),  // spread evenly, the same at every drawing
      text: dots.map(([value, c]) => `${plain(cut(DATA.clients[c], 40))}: ${valueText(value)}`),
    },
  ];
}
function drawBoxes() {
  const model = $("model").value;
  $("spread").hidden = !model;
  if (!model) return false;
  const lines = METHODS.map((method, i) => [method, i]).filter(([method, i]) => method.values[model] && !hidden.has(i));
  const traces = lines.flatMap(([method, i], at) => boxTraces(method.label, method.values[model], colour(i), at, i));
  const names = lines.map(([method]) => method.label);
  const reference = alone();
  if (reference && model !== "alone") {
    traces.push(...boxTraces("Alone", reference, css("--alone"), names.length, -1));
    names.push("Alone");
  }
  const labels = { tickmode: "array", tickvals: names.map((_, at) => at), ticktext: names.map((name) => wrapped(name, narrow() ? 14 : 24)) };
  const side = axis("", { ...labels, range: [names.length - 0.4, -0.6], showgrid: false, nticks: 0 });
  show($("boxes"), traces, layout({ xaxis: valueAxis(`${title(DATA.split)} ${DATA.label} of a client`, DATA.share, DATA.from0to1 ? { minallowed: -0.04, maxallowed: 1.04 } : {}), yaxis: side, hovermode: "closest" }), 86 + 62 * Math.max(1, names.length));
  return true;
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
  const bottom = axis(bySize ? "Training rows of the client" : "Clients, largest share first", wide ? logarithmic : !bySize && DATA.clients.length <= 10 ? { dtick: 1 } : {});
  drawLegend($("own-legend"), lines.map(([method, i]) => [method.label, i, "dots"]));
  const side = axis("Own share", { tickformat: ".0%", range: [-0.04, 1.04] });
  show($("own-chart"), traces, layout({ hovermode: "closest", xaxis: bottom, yaxis: side }), narrow() ? 300 : 345);
}
