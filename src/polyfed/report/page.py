"""The report: one HTML file that holds its styles, scripts and numbers, so that it can be read without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from polyfed.core.files import write_text
from polyfed.report.cautions import cautions
from polyfed.report.data import page_data
from polyfed.report.headline import headline
from polyfed.report.methods import group
from polyfed.report.notes import notes
from polyfed.report.sections import configs, cost_table, fairness_table, methods_table, models_table, toggles
from polyfed.report.sites import cards, plain_table
from polyfed.studies.run_directory import RunRecord

SCRIPTS = ("base", "charts", "fairness", "shares", "sites", "main")  # in the order in which they need each other


def write_report(runs: Sequence[RunRecord], path: str | Path, *, title: str) -> Path:
    """Write the report of these runs to `path`. The same runs and title give the same bytes."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render(runs, title=title))
    return path


def render(runs: Sequence[RunRecord], *, title: str) -> str:
    """The report as text. Whatever comes from the data is escaped before it becomes HTML."""
    methods = group(runs)
    story = headline(methods)
    own = "".join(_asset(f"{name}.js") for name in SCRIPTS)
    return Template(_asset("template.html")).substitute(
        title=escape(title),
        style=_asset("report.css"),
        headline=escape(story.sentence),
        details=" ".join(f"<li>{escape(sentence)}</li>" for sentence in story.details),
        cautions=cautions(methods),
        cards=cards(story.focus),
        plain_clients=plain_table(story.focus),
        toggles=toggles(methods),
        methods_table=methods_table(methods),
        models_table=models_table(methods),
        fairness_table=fairness_table(methods),
        cost_table=cost_table(methods),
        notes=notes(methods),
        configs=configs(methods),
        plotly=_script(_asset("plotly-basic.min.js")),
        data=_json(page_data(methods, story.focus)),
        script=_script(own),
    )


def _asset(name: str) -> str:
    return files("polyfed.report").joinpath("assets", name).read_text(encoding="utf-8")


def _script(source: str) -> str:
    """Source that cannot end its script element early."""
    return source.replace("</script", "<\\/script")


def _json(data: object) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
