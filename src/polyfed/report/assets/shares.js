// The share of the own model over the rounds: a panel for each method whose shares move.

function drawShares() {
  const drawn = METHODS.map((_, i) => i).filter((i) => METHODS[i].shares);
  $("moves").hidden = drawn.length === 0;
  const margin = { l: 8, r: 10, t: 6, b: 8 };
  for (const i of drawn) facet(i, "move").hidden = hidden.has(i);
  for (const i of drawn) {
    const method = METHODS[i], box = facet(i, "move"), tint = colour(i);
    const { rounds: x, band: [low, middle, high], lines } = method.shares;
    const at = (values, where) => percent(values.at(where), 0);
    box.querySelector("small").textContent = `median ${at(middle, 0)} → ${at(middle, -1)}`;
    if (box.hidden) { for (const trace of box.lastChild.data || []) trace.visible = false; continue; }
    const edge = { x, meta: i, mode: "lines", line: { width: 0 }, hoverinfo: "skip", visible: true };
    const traces = [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faint(tint, 0.16) }];
    for (const [c, values] of lines) {
      const name = plain(cut(DATA.clients[c], 40));
      traces.push({
        x, y: values, meta: i, mode: "lines", visible: true, line: { color: faint(tint, 0.55), width: 1 },
        text: values.map((own) => percent(own)), hovertemplate: `%{text}<extra>${name}</extra>`,
      });
    }
    traces.push({
      x, y: middle, meta: i, mode: "lines", visible: true, line: { color: tint, width: 2.6 },
      text: middle.map((own) => percent(own)), hovertemplate: "%{text}<extra>median</extra>",
    });
    const bottom = axis("Rounds", { range: [0, Math.max(1, x.at(-1)) * 1.01] });
    const side = axis("Own share", { tickformat: ".0%", range: [-0.04, 1.04] });
    show(box.lastChild, traces, layout({ margin, hovermode: "closest", xaxis: bottom, yaxis: side }), narrow() ? 260 : 320);
  }
}
