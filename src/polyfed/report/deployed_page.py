"""The page of a deployed run: what each model is worth at a site beside training alone, with interval and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from math import isfinite
from pathlib import Path
from string import Template
from typing import Any, Self

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.report.interval_line import interval_line, reach_of, shown, signed
from polyfed.report.style import style_without_scripts

VERDICTS = ("gains", "loses", "cannot tell")
LONGEST = 256
WORDS = {
    "personal": "personal",
    "global": "global",
    "alone": "alone (this site's rows only)",
    "constant": "constant (the same for every row)",
}
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
</style>
</head>
<body>
<header>
  <div class="bar"><span class="brand">polyfed</span><span class="title">$title</span></div>
  <h1>$answer</h1>
  <ul class="details">$details</ul>
</header>
<main>
$sites
  <section><h2>How to read this</h2>
    <p>A gain is the difference to training alone on the same test rows, positive where it is for the better, with its
    95% interval. The test rows were used neither to train nor to choose. The interval is about these very models:
    another training set or seed is no part of it.</p></section>
</main>
</body>
</html>
""")


@dataclass(frozen=True)
class Standing:
    """One model at one site."""

    model: str
    value: float | None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    verdict: str | None = None
    smallest: float | None = None
    """the smallest gain that its rows could have shown"""


@dataclass(frozen=True)
class Outcome:
    """One site at the end of a run."""

    site: str
    run: str
    method: str
    deploy: str
    rounds: int
    rows: int
    test_rows: int
    metric: str
    models: tuple[Standing, ...]

    @property
    def deployed(self) -> Standing:
        return next((model for model in self.models if model.model == self.deploy), Standing(self.deploy, None))

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """The way back from `dataclasses.asdict` and JSON; anything else is refused."""
        try:
            models = tuple(_standing(about) for about in given["models"])
            made = cls(**{**given, "models": models})
            texts = (made.site, made.run, made.method, made.deploy, made.metric)
            wholes = (made.rounds, made.rows, made.test_rows)
            if len(models) > 10 or not all(isinstance(text, str) and len(text) <= LONGEST for text in texts):
                raise ValueError("a text")
            if not all(type(whole) is int and 0 <= whole < 2**53 for whole in wholes):
                raise ValueError("a count")
            return made
        except (KeyError, TypeError, ValueError) as error:
            raise PolyfedError(f"the outcome of a site cannot be read ({type(error).__name__})") from None


def _standing(about: Mapping[str, Any]) -> Standing:
    made = Standing(**about)
    if made.model not in WORDS or made.verdict not in (None, *VERDICTS):
        raise ValueError("a word")
    for field in fields(Standing):
        value = getattr(made, field.name)
        if field.name in ("model", "verdict") or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise ValueError("a number")
    return made


def write_deployed_page(outcomes: Sequence[Outcome], path: Path, *, title: str) -> None:
    """Write the page, one file without scripts."""
    first = outcomes[0]
    details = [f"{first.method}, {first.rounds} rounds", *map(_detail, outcomes)]
    text = PAGE.substitute(
        title=escape(title),
        style=style_without_scripts(),
        answer=escape(_answer(outcomes)),
        details=" ".join(f"<li>{escape(line)}.</li>" for line in details),
        sites="\n".join(map(_section, outcomes)),
    )
    write_text(path, text)


def _answer(outcomes: Sequence[Outcome]) -> str:
    if len(outcomes) == 1:
        one = outcomes[0]
        if one.deploy == "alone":
            return f"{one.site} deploys its own model."
        word = one.deployed.verdict or "cannot tell"
        return f"{one.site} {word}" + (
            " whether training together helps." if word == "cannot tell" else " from training together."
        )
    words = [one.deployed.verdict for one in outcomes if one.deploy != "alone"]
    counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
    alone = len(outcomes) - len(words)
    own = f"{'; ' if counts else ''}{alone} deploy{'s' * (alone == 1)} its own model" if alone else ""
    return f"Of {len(outcomes)} sites: {counts}{own}."


def _detail(one: Outcome) -> str:
    told = one.deployed
    text = f"{one.site} deploys the {one.deploy} model: {one.metric} {shown(told.value)} on {one.test_rows:,} test rows"
    if told.verdict == "cannot tell" and told.smallest is not None:
        text += f", which could have shown no gain below {told.smallest:.2g}"
    return text


def _section(one: Outcome) -> str:
    ends = [v for m in one.models for v in (m.gain, m.gain_low, m.gain_high) if v is not None]
    reach = reach_of(ends)
    rows = []
    for model in one.models:
        between = line = ""
        if model.gain is not None and model.gain_low is not None and model.gain_high is not None:
            between = f"<br><small>{signed(model.gain_low)} to {signed(model.gain_high)}</small>"
            line = interval_line(model.gain, model.gain_low, model.gain_high, model.verdict, reach)
        gain = "" if model.gain is None else signed(model.gain)
        mark = " <small>(deployed)</small>" if model.model == one.deploy else ""
        rows.append(
            f"<tr><th scope='row'>{escape(WORDS[model.model])}{mark}</th><td>{shown(model.value)}</td>"
            f"<td>{escape(model.verdict or '')}</td><td>{gain}{between}</td><td>{line}</td></tr>"
        )
    heads = "".join(
        f"<th scope='col'>{escape(h)}</th>" for h in ("Model", one.metric, "Verdict", "Gain over alone", "95% interval")
    )
    return (
        f"  <section><h2>{escape(one.site)}</h2><p>{one.rows:,} training rows, {one.test_rows:,} test rows.</p>"
        f"<div class='scroll' tabindex='0'><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "</div></section>"
    )
