"""What a reproduction writes: its figure, its data, its claims, and a page with the same headings for all."""

from __future__ import annotations

import json
import os
import platform
from functools import cache
from pathlib import Path

import jax
import matplotlib

from polyfed.core.files import write_csv, write_text
from polyfed.core.startup import start
from polyfed.papers.shared.experiment import Claim, Experiment, Outcome


def write(outcome: Outcome, experiment: Experiment, folder: str | Path, quick: bool) -> list[Path]:
    """Write figure.svg, figure.png, data.csv, claims.json and README.md; the same outcome gives the same bytes.

    A second figure is figure-2.svg, and so on.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = _draw(outcome, experiment, folder)
    keys = list(dict.fromkeys(key for row in outcome.rows for key in row))
    write_csv(folder / "data.csv", [{key: row.get(key, "") for key in keys} for row in outcome.rows])
    write_text(folder / "claims.json", json.dumps(claims_record(outcome, experiment, quick), indent=1) + "\n")
    write_text(folder / "README.md", page(outcome, experiment, quick, [p.name for p in written if p.suffix == ".svg"]))
    return [*written, *(folder / name for name in ("data.csv", "claims.json", "README.md"))]


def claims_record(outcome: Outcome, experiment: Experiment, quick: bool) -> dict[str, object]:
    return {
        "experiment": experiment.name,
        "quick": quick,
        "passed": bool(outcome.passed),
        "claims": [{"text": c.text, "measured": c.measured, "passed": bool(c.passed)} for c in outcome.claims],
        "settings": outcome.settings,
    }


def page(outcome: Outcome, experiment: Experiment, quick: bool, images: list[str]) -> str:
    """The docs page: Paper, What was run, Data, Hardware, Hyper-parameters, Result, Differences."""
    command = f"polyfed reproduce {experiment.name}{' --quick' if quick else ''}"
    what = "A quick version: fewer rounds, less data." if quick else "The whole experiment."
    pictures = "\n\n".join(f"![{experiment.caption}]({image})" for image in images)
    settings = "\n".join(f"| {name} | {_in_table(value)} |" for name, value in outcome.settings.items())
    sections = {
        "Paper": experiment.paper,
        "What was run": f"{experiment.title}. {what}\n\n```\n{command}\n```",
        "Data": experiment.data,
        "Hardware": hardware(),
        "Hyper-parameters": f"| name | value |\n| --- | --- |\n{settings}" if settings else "None.",
        "Result": "\n\n".join([pictures, experiment.caption, _claims_table(outcome.claims), *outcome.notes]),
        "Differences": experiment.differences or "None.",
    }
    body = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())
    return f"# {experiment.name}: {experiment.title}\n\n{body}\n"


@cache
def hardware() -> str:
    """The machine in a sentence: processor, cores, the devices that JAX computes on, versions."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    start()  # otherwise JAX would have other devices than the runs
    devices = sorted({device.device_kind for device in jax.devices()})
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()}; JAX {jax.__version__} on {', '.join(devices)} "
        f"({len(jax.devices())} devices), Python {platform.python_version()}."
    )


def _claims_table(claims: list[Claim]) -> str:
    if not claims:
        return "No claim is checked here."
    rows = [f"| {_cell(c.text)} | {_cell(c.measured)} | {'pass' if c.passed else '**fail**'} |" for c in claims]
    return "\n".join(["| claim | measured | |", "| --- | --- | --- |", *rows])


def _draw(outcome: Outcome, experiment: Experiment, folder: Path) -> list[Path]:
    """Both formats of every figure, without dates, versions or random ids in them."""
    written = []
    with matplotlib.rc_context({"svg.hashsalt": experiment.name}):
        for number, figure in enumerate(outcome.figures, 1):
            stem = "figure" if number == 1 else f"figure-{number}"
            for form, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
                path, part = folder / f"{stem}.{form}", folder / f".{stem}.{form}.part"
                figure.savefig(part, format=form, metadata=metadata)
                os.replace(part, path)
                written.append(path)
    return written


def _in_table(value: object) -> str:
    """A setting as text of a table's cell."""
    if isinstance(value, dict):
        return _cell("; ".join(f"{key}: {_in_table(inner)}" for key, inner in value.items()))
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_table, value))
    return _cell(f"{value:.4g}" if isinstance(value, float) else str(value))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
