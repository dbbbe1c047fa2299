// The page's controls: methods, theme, selectors, printing.

const CHARTS = [drawGains, drawCurves, drawFairness, drawOwn, drawShares];

function drawAll() {
  for (const draw of CHARTS) draw();
}

function toggle(method) {
  if (!hidden.delete(method)) hidden.add(method);
  const off = hidden.has(method);
  for (const node of document.querySelectorAll(`tr[data-method="${method}"], details[data-method="${method}"]`)) node.hidden = off;
  document.querySelector(`.toggle[data-method="${method}"]`).setAttribute("aria-pressed", String(!off));
  drawAll();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function fill(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
}

function start() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { setTheme(dark.matches ? "dark" : "light"); drawAll(); });
  $("theme").onclick = () => { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); drawAll(); };

  fill($("curve"), DATA.options.map((option) => [option.key, option.name]));
  const models = [["deployed", "deployed"], ["global", "global"], ["finetuned", "global, fine-tuned"], ["alone", "alone"]];
  fill($("model"), models.filter(([key]) => METHODS.some((method) => method.values[key])));
  fill($("fair-model"), fairModels());
  fill($("site-method"), METHODS.map((method, i) => [i, cut(method.label, 60)]));
  $("site-method").value = DATA.focus;
  $("site-method").parentNode.hidden = METHODS.length < 2;

  $("methods").hidden = METHODS.length < 2;
  for (const button of document.querySelectorAll(".toggle")) button.onclick = () => toggle(Number(button.dataset.method));
  for (const id of ["curve", "against", "log"]) $(id).onchange = drawCurves;
  $("model").onchange = drawBoxes;
  $("fair-model").onchange = drawFairness;
  $("site-method").onchange = () => { drawSites(); drawGains(); };
  $("find").oninput = () => { portion = PORTION; drawSites(); };
  $("more").onclick = () => { portion += PORTION; drawSites(); };

  let wasNarrow = narrow();
  window.addEventListener("resize", () => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); drawAll(); } });
  let before = null;
  window.addEventListener("beforeprint", () => { // Paper is white and about 700 pixels wide.
    before = document.documentElement.dataset.theme;
    setTheme("light");
    document.body.style.width = "700px";
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    setTheme(before);
    document.body.style.width = "";
    drawAll();
  });
  drawAll();
  drawSites();
}
start();
