"""The page of `polyfed advise`: the answer, each site with its verdict, who gains from whom, and what was tried."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path
from string import Template

import numpy as np

from polyfed.core.files import write_text
from polyfed.report.interval_line import interval_line, reach_of, shown, signed
from polyfed.report.style import style_without_scripts
from polyfed.studies.advice import Advice, SiteAdvice

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
$style
.span { display: block; width: 190px; height: 14px; }
.details li { display: list-item; }
.effect { text-align: right; border-radius: 4px; }
</style>
</head>
<body>
<header>
  <div class="bar"><span class="brand">polyfed</span><span class="title">advice for $title</span></div>
  <h1>$answer</h1>
  <ul class="details">$details</ul>
</header>
<main>
  <section><h2>Site by site</h2>
    <p>The gain of following this advice over going alone, in $metric, with its 95% interval. The verdict is each site's
    own, before correction for their number. Where it cannot tell, the smallest gain that its rows could have shown
    stands below, if there is one. A site that deploys its own model gains nothing by that: below stands what the
    common model would have changed.</p>
    <div class="scroll" tabindex="0">$sites</div></section>
  $influence
  <section><h2>What was tried</h2>
    <p>Every way of training has six candidates. The lowest validation loss chooses, after sites whose rows speak
    against a way of training have left it. The metric is that of all sites with it. Figures are means over sites and
    $splits draws of the rows; the best candidate of each draw counts.</p>
    <div class="scroll" tabindex="0">$methods</div></section>
  <section><h2>How this was found</h2>
    <p>In each of $splits draws, all choices were made by validation rows: the method, its hyper-parameters and, for
    every site, whether it deploys its personal model, the global one or its own. A site leaves the federation's choice
    only where its validation rows speak against it with 95% confidence. Test rows chose nothing; the gains come from
    them. So they are the worth of the whole procedure, choices included.</p></section>
  <section><h2>Next</h2>$next</section>
</main>
</body>
</html>
""")


def write_advice_page(advice: Advice, path: Path, *, title: str) -> None:
    """Write the page, one file without scripts."""
    details = [
        *advice.beside,
        *advice.warnings,
        f"One training: {advice.rounds} rounds, {advice.bits_up / 8e6:.2g} MB up and {advice.bits_down / 8e6:.2g} MB "
        f"down by all sites, {advice.training_seconds:.2g} s here; found in {advice.seconds:.0f} s",
        *([] if advice.privacy is None else [advice.privacy.sentence]),
        *([f"Not tried for want of time: {advice.not_tried}"] if advice.skipped else []),
    ]
    text = PAGE.substitute(
        title=escape(title),
        style=style_without_scripts(),
        answer=escape(f"{advice.sentence}."),
        details=" ".join(f"<li>{escape(line[0].upper() + line[1:])}.</li>" for line in details),
        metric=escape(advice.metric.label),
        sites=_sites(advice),
        influence=_influence(advice),
        methods=_methods(advice),
        splits=advice.splits,
        next="".join(f"<p><code>{escape(command)}</code></p>" for command in advice.next_commands(path.parent)),
    )
    write_text(path, text)


def _sites(advice: Advice) -> str:
    reach = reach_of(v for s in advice.sites for v in (s.gain_low, s.gain_high))
    rows = []
    for site in advice.sites:
        low, high = site.gain_low, site.gain_high
        between = line = below = ""
        if low is not None and high is not None:
            between = f"<br><small>{signed(low)} to {signed(high)}</small>"
            line = interval_line(site.gain, low, high, site.verdict, reach)
        if site.verdict == "cannot tell" and site.smallest is not None:
            seen = site.smallest < advice.metric.largest
            told = f"nothing below {site.smallest:.2g}" if seen else "too few rows"
            below = f"<br><small>{told}</small>"
        deploys = site.deploy
        if _leaves(advice, site):
            deploys += f"<br><small>together {signed(site.together_gain)}</small>"
        rows.append(
            f"<tr><th scope='row'>{escape(site.client)}</th><td>{site.verdict}{below}</td><td>{deploys}</td>"
            f"<td>{signed(site.gain)}{between}</td><td>{line}</td><td>{shown(site.alone)}</td>"
            f"<td>{shown(site.advised)}</td><td>{site.rows:,}<br><small>{site.test_rows:,} test</small></td></tr>"
        )
    heads = ("Site", "Verdict", "Deploy", "Gain", "95% interval", "Alone", "Advised", "Rows")
    return _table(heads, rows)


def _leaves(advice: Advice, site: SiteAdvice) -> bool:
    """Whether the others train together and this site deploys its own model."""
    return advice.method != "alone" and site.deploy == "alone" and not math.isnan(site.together_gain)


def _methods(advice: Advice) -> str:
    name = advice.metric.name
    rows = []
    for row in sorted(advice.table, key=lambda row: row["validation_loss"]):
        same = row["method"] == advice.method and row["model"] == advice.model
        chosen = same and row["apart"] == bool(advice.apart)
        mark = " <small>(some apart)</small>" * row["apart"] + " <small>(chosen)</small>" * chosen
        rows.append(
            f"<tr><th scope='row'>{escape(row['method'])}{mark}</th><td>{escape(row['model'])}</td>"
            f"<td>{shown(row['validation_loss'])}</td><td>{shown(row[name])}</td></tr>"
        )
    return _table(("Method", "Model", "Validation loss", f"Test {advice.metric.label}"), rows)


def _influence(advice: Advice) -> str:
    found = advice.influence
    if found is None:
        return ""
    most = float(np.nanmax(np.abs(found.effect))) or 1.0
    rows = []
    for i, out in enumerate(found.clients):
        cells = "".join(_effect(value, most) for value in found.effect[i])
        rows.append(f"<tr><th scope='row'>{escape(out)}</th>{cells}<td><b>{signed(found.brings[i])}</b></td></tr>")
    heads = ("Without", *found.clients, "Mean")
    return (
        "<section><h2>Who gains from whom</h2><p>A row leaves one site out. A cell says by how much the test loss of "
        "another site rises then: green, the site that is missing had helped; red, it had harmed. Differences that are "
        "small beside the others are noise.</p>"
        f"<div class='scroll' tabindex='0'>{_table(heads, rows)}</div></section>"
    )


def _effect(value: float, most: float) -> str:
    if np.isnan(value):
        return "<td></td>"
    colour = "var(--good)" if value > 0 else "var(--bad)"
    shade = f"color-mix(in srgb, {colour} {round(45 * abs(value) / most)}%, transparent)"
    return f"<td class='effect' style='background: {shade}'>{signed(value)}</td>"


def _table(heads: tuple[str, ...], rows: list[str]) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
