// The clients' table: a row per client, sortable by any column, searchable, drawn in portions.

const PORTION = 200;
let sortBy = 0, ascending = true, portion = PORTION;

function clientColumns() {
  const seen = METHODS.map((method, i) => [method, i]).filter(([, i]) => !hidden.has(i));
  const any = (split) => DATA.clients.map((_, c) => METHODS.map((method) => method.rows[split][c]).find(there) ?? null);
  const columns = [
    { title: "Client", values: DATA.clients, text: (name) => name },
    { title: "Train rows", values: any("train"), text: count },
    { title: "Test rows", values: any("test"), text: count },
  ];
  if (seen.length === 1) {
    const [method] = seen[0];
    for (const [model, title] of [["alone", "Alone"], ["global", "Global"], ["finetuned", "Fine-tuned"], ["deployed", "Deployed"]])
      if (method.values[model]) columns.push({ title, values: method.values[model], text: (value) => valueText(value) });
    if (method.gains.some(there)) columns.push({ title: "Gain over alone", values: method.gains, text: gainText, sign: method.gains });
    if (method.own_share.some(there)) columns.push({ title: "Own share", values: method.own_share, text: (own) => percent(own, 0) });
    return columns;
  }
  const reference = alone();
  if (reference) columns.push({ title: "Alone", values: reference, text: (value) => valueText(value) });
  for (const [method] of seen) {
    const extra = method.gains.some((gain) => there(gain) && gain !== 0) ? method.gains : null;
    if (method.values.deployed) columns.push({ title: method.label, values: method.values.deployed, text: (value) => valueText(value), extra });
  }
  return columns;
}

function drawClients() {
  const columns = clientColumns();
  if (sortBy >= columns.length) { sortBy = 0; ascending = true; }
  const head = document.createElement("tr");
  columns.forEach((column, at) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    cell.scope = "col";
    if (at === sortBy) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    button.type = "button";
    button.textContent = column.title;
    button.onclick = () => { ascending = at === sortBy ? !ascending : at === 0; sortBy = at; drawClients(); };
    cell.append(button);
    head.append(cell);
  });
  const wanted = $("find").value.trim().toLowerCase();
  const rows = DATA.clients.map((_, c) => c).filter((c) => DATA.clients[c].toLowerCase().includes(wanted));
  const key = columns[sortBy].values, sign = ascending ? 1 : -1;
  const order = sortBy === 0 ? (a, b) => sign * key[a].localeCompare(key[b], "en", { numeric: true }) : (a, b) => sign * (key[a] - key[b]);
  rows.sort((a, b) => (there(key[b]) - there(key[a])) || (there(key[a]) ? order(a, b) : 0) || a - b);
  const table = $("client-table");
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...rows.slice(0, portion).map((c) => clientRow(columns, c)));
  const shown = Math.min(portion, rows.length);
  const noun = rows.length === 1 ? "client" : "clients";
  $("count").textContent = shown < rows.length ? `${count(shown)} of ${count(rows.length)} clients shown` : `${count(rows.length)} ${noun}`;
  $("more").hidden = shown === rows.length;
}

function clientRow(columns, c) {
  const line = document.createElement("tr");
  columns.forEach((column, at) => {
    const cell = document.createElement(at === 0 ? "th" : "td");
    cell.textContent = column.text(column.values[c]);
    if (at === 0) { cell.scope = "row"; cell.title = column.values[c]; }
    if (column.sign) paint(cell, column.sign[c]);
    if (column.extra && there(column.extra[c])) {
      const small = document.createElement("small");
      small.textContent = " " + gainText(column.extra[c]);
      paint(small, column.extra[c]);
      cell.append(small);
    }
    line.append(cell);
  });
  return line;
}
const paint = (node, gain) => { if (there(gain) && gain !== 0) node.className = gain > 0 ? "good" : "bad"; };
