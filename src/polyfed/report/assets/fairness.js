// Fairness: the smallest and the largest client over the rounds, and weights in the server's average against data.

const fairKey = (model, what) => `${model}_${DATA.fair?.stem}_${what}`;
const fairModels = () => [["deployed", "deployed"], ["global", "global"]].filter(([model]) => METHODS.some((method) => method.curves[fairKey(model, "smallest")]));

function drawFairness() {
  $("fairness").hidden = false; // A chart measures its room while it is drawn.
  const drawn = [drawBoxes(), drawExtremes(), drawWeights()];
  $("fairness").hidden = !(drawn.some(Boolean) || $("fair-table").children.length);
}

// A panel for each method: the client with the fewest training rows dashed, the one with the most solid, the gap shaded.
function drawExtremes() {
  const model = $("fair-model").value, end = (values) => values.findLast(there);
  const drawn = METHODS.map((_, i) => i).filter((i) => METHODS[i].curves[fairKey(model, "smallest")]);
  $("fair-rounds").hidden = drawn.length === 0;
  if (!drawn.length) return false;
  const { label, share } = DATA.fair;
  $("fair-text").textContent = `The ${label} of the client with the fewest training rows (dotted) and of the one with the most (solid), round by round.${drawn.length > 1 ? " All panels share one scale." : ""}`;
  for (const i of METHODS.keys()) if ($(`fair-${i}`) && !drawn.includes(i)) facet(i, "fair").hidden = true;
  const all = drawn.flatMap((i) => ["smallest", "largest"].flatMap((what) => METHODS[i].curves[fairKey(model, what)].mean.filter(there)));
  const room = 0.04 * (largest(all) - smallest(all) || 1), range = [smallest(all) - room, largest(all) + room];
  for (const i of drawn) facet(i, "fair").hidden = hidden.has(i);
  for (const i of drawn) {
    const method = METHODS[i], box = facet(i, "fair"), tint = colour(i), x = method.axes.round;
    const low = method.curves[fairKey(model, "smallest")].mean, high = method.curves[fairKey(model, "largest")].mean;
    const gap = end(high) - end(low);
    box.querySelector("small").textContent = Number.isFinite(gap) ? `gap at the end ${share ? `${minus((100 * gap).toFixed(1))} points` : significant(gap, 3)}` : "";
    if (box.hidden) { for (const trace of box.lastChild.data || []) trace.visible = false; continue; }
    const line = (y, name, look) => ({
      x, y, meta: i, mode: "lines", visible: true, name, line: { color: tint, ...look },
      text: y.map((value) => valueText(value, share)), hovertemplate: `%{text}<extra>${name}</extra>`,
    });
    const traces = [
      line(low, "smallest client", { width: 1.6, dash: "dot" }),
      { ...line(high, "largest client", { width: 2.2 }), fill: "tonexty", fillcolor: faint(tint, 0.12) },
    ];
    const bottom = axis("Rounds", { range: [0, Math.max(1, x.at(-1)) * 1.01] });
    const margin = { l: 8, r: 10, t: 6, b: 8 };
    show(box.lastChild, traces, layout({ margin, hovermode: "x unified", xaxis: bottom, yaxis: valueAxis(title(label), share, { range }) }), narrow() ? 240 : 270);
  }
  return true;
}

// A point is a client: above the line the server listens to it more than its data would earn it.
function drawWeights() {
  const known = METHODS.map((method, i) => {
    const rows = method.rows.train, total = rows.filter(there).reduce((a, b) => a + b, 0);
    return [i, method.weights.map((weight, c) => [rows[c] / total, weight, c]).filter(([share, weight]) => share > 0 && weight > 0)];
  }).filter(([, points]) => points.length > 1);
  $("fair-weights").hidden = known.length === 0;
  if (!known.length) return false;
  const both = known.flatMap(([, points]) => points.flatMap(([share, weight]) => [share, weight]));
  const ends = [smallest(both) / 1.3, largest(both) * 1.3];
  // Methods whose server listens alike share their dots, as one would cover the other.
  const alike = new Map();
  for (const [i, points] of known.filter(([i]) => !hidden.has(i))) alike.set(String(points), [...(alike.get(String(points)) || []), i]);
  const groups = [...alike.values()];
  const traces = groups.map((own) => {
    const [i] = own, points = known.find(([method]) => method === i)[1], one = own.length === 1;
    return {
      mode: "markers", meta: one ? i : -1, x: points.map(([share]) => share), y: points.map(([, weight]) => weight),
      marker: { color: one ? colour(i) : css("--soft"), symbol: one ? symbol(i) : "circle", size: points.length > 200 ? 4 : 8, opacity: points.length > 200 ? 0.5 : 0.8 },
      text: points.map(([share, weight, c]) => `<b>${plain(cut(DATA.clients[c], 40))}</b><br>weight ${percent(weight, 2)}<br>data ${percent(share, 2)}`),
      hovertemplate: "%{text}<extra></extra>",
    };
  });
  traces.push({ x: ends, y: ends, mode: "lines", meta: -1, name: "as its data", line: { color: css("--alone"), width: 1.4, dash: "dash" }, hoverinfo: "skip" });
  const wide = ends[1] / ends[0] > 20, steps = ends[1] / ends[0] > 500 ? [1] : [1, 2, 5];
  const ticks = [-5, -4, -3, -2, -1].flatMap((power) => steps.map((step) => Number(`${step}e${power}`))).concat(1);
  const scale = wide
    ? { type: "log", range: ends.map(Math.log10), tickmode: "array", tickvals: ticks, ticktext: ticks.map((tick) => `${Number((100 * tick).toPrecision(3))}%`) }
    : { tickformat: ",.2~%", range: [0, ends[1]] };
  const entries = groups.map((own) => [own.map((i) => METHODS[i].label).join("; "), own.length === 1 ? own[0] : -1, "dots"]);
  drawLegend($("weight-legend"), entries.concat([["as its data", -1, "dash"]]));
  show($("weight-chart"), traces, layout({ hovermode: "closest", xaxis: axis("Share of the training rows", scale), yaxis: axis("Share of the server’s averages", scale) }), narrow() ? 320 : 385);
  return true;
}
