"""What a reproduction writes: its figure, its data, its claims, and a page with the same headings for all."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jax
import matplotlib

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_csv, write_text
from polyfed.core.startup import start
from polyfed.papers.shared.claims import Claim, counts
from polyfed.papers.shared.experiment import Experiment, Measured, Outcome
from polyfed.papers.shared.rows import read_rows

DATA, RECORD, PAGE = "data.csv", "claims.json", "README.md"
HEADINGS = ("Paper", "What was run", "Data", "Hardware", "Hyper-parameters", "Result", "Differences")
"""The sections that a reproduction writes."""
WHOLE = "What is not as in the paper stands under [Differences](#differences)."
"""What a page says of an experiment's size, unless the experiment does."""
EARLIER = "An earlier setting"
"""A section that is added by hand where the experiment has changed since; a new run drops it."""


def write(outcome: Outcome, experiment: Experiment, folder: str | Path, quick: bool, machine: str = "") -> list[Path]:
    """Write figure.svg, figure.png, data.csv, claims.json and README.md; the same outcome gives the same bytes.

    A second figure is figure-2.svg, and so on. Sections that were added to a page by hand, such as Notes, stay.
    `machine`: where the rows were measured, if not here.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    machine = machine or hardware()
    written = _draw(outcome, experiment, folder)
    rows = outcome.measured.rows
    keys = list(dict.fromkeys(key for row in rows for key in row))
    write_csv(folder / DATA, [{key: row.get(key, "") for key in keys} for row in rows])
    write_text(folder / RECORD, json.dumps(claims_record(outcome, experiment, quick, machine), indent=1) + "\n")
    images = [path.name for path in written if path.suffix == ".png"]
    text = page(outcome, experiment, quick, images, machine, added_sections(folder / PAGE))
    write_text(folder / PAGE, text)
    return [*written, *(folder / name for name in (DATA, RECORD, PAGE))]


def stored(experiment: Experiment, folder: str | Path) -> tuple[Measured, bool, str]:
    """What a folder holds of an experiment: its rows with settings and notes, whether it was quick, and the machine."""
    folder = Path(folder)
    if (folder / PAGE).exists() and f"\n## {EARLIER}\n" in (folder / PAGE).read_text():
        raise PolyfedError(f"{folder}: the stored rows are of an earlier setting; leave out --redraw to run it anew")
    rows = read_rows(folder / DATA)
    record = json.loads((folder / RECORD).read_text())
    measured = Measured(rows, record["settings"], record["notes"], record.get("scope", ""))
    return measured, record["quick"], record["hardware"]


def claims_record(outcome: Outcome, experiment: Experiment, quick: bool, machine: str) -> dict[str, object]:
    record: dict[str, object] = {
        "experiment": experiment.name,
        "quick": quick,
        "hardware": machine,
        "verdicts": counts(outcome.claims),
        "claims": [claim.record for claim in outcome.claims],
        "settings": outcome.measured.settings,
        "notes": outcome.measured.notes,
    }
    return record | ({"scope": outcome.measured.scope} if outcome.measured.scope else {})


def page(
    outcome: Outcome, experiment: Experiment, quick: bool, images: list[str], machine: str, added: Mapping[str, str]
) -> str:
    """The docs page: Paper, What was run, Data, Hardware, Hyper-parameters, Result, Differences, and what was added."""
    command = f"polyfed reproduce {experiment.name}{' --quick' if quick else ''}"
    what = "A quick version: fewer rounds, less data." if quick else outcome.measured.scope or WHOLE
    pictures = "\n\n".join(f"![{experiment.caption}]({image})" for image in images)
    settings = "\n".join(f"| {name} | {_in_table(value)} |" for name, value in outcome.measured.settings.items())
    result = [pictures, experiment.caption, claims_table(outcome.claims), *outcome.tables, *outcome.measured.notes]
    sections = {
        "Paper": experiment.paper,
        "What was run": f"{experiment.title}. {what}\n\n```\n{command}\n```",
        "Data": experiment.data,
        "Hardware": machine,
        "Hyper-parameters": f"| name | value |\n| --- | --- |\n{settings}" if settings else "None.",
        "Result": "\n\n".join(result),
        "Differences": experiment.differences or "None.",
        **added,
    }
    body = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())
    return f"# {experiment.name}: {experiment.title}\n\n{body}\n"


def added_sections(file: Path) -> dict[str, str]:
    """The sections of a page that no reproduction writes."""
    if not file.exists():
        return {}
    parts = re.split(r"^## (.+)\n", file.read_text(), flags=re.M)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return {heading: text.strip() for heading, text in sections.items() if heading not in (*HEADINGS, EARLIER)}


def claims_table(claims: list[Claim]) -> str:
    """A line per claim: what was measured, what decides, and the verdict."""
    if not claims:
        return "No claim is checked here."
    marks = {"holds": "holds", "does not hold": "**does not hold**", "undecided": "*undecided*"}
    rows = [f"| {_cell(c.text)} | {_cell(c.measured)} | {_cell(c.basis)} | {marks[c.verdict]} |" for c in claims]
    return "\n".join(["| claim | measured | difference [95% interval] | verdict |", "| --- | --- | --- | --- |", *rows])


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
