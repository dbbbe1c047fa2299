"""The command `polyfed tune`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, Change, ConfigFile, Overwrite, Quiet, Resume, err, out, say_cautions
from polyfed.core.errors import PolyfedError
from polyfed.core.files import check_folder
from polyfed.core.lock import locked

if TYPE_CHECKING:
    from polyfed.studies.tuning import Tuning


def tune(
    config: ConfigFile,
    change: Change = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the outcome goes; by default runs/NAME-tuning.")
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search hyper-parameters, as many candidates for every method, chosen by validation rows alone."""
    from polyfed.cli.progress import candidate_bars
    from polyfed.data.cautions import cautions
    from polyfed.studies.config import read_config
    from polyfed.studies.tuning import tune as search
    from polyfed.studies.tuning.search import JOURNAL

    settings = read_config(config, change or [])
    place = folder or Path("runs") / f"{config.stem}-tuning"
    check_folder(place)
    if (place / JOURNAL).exists() and not (resume or overwrite):
        raise PolyfedError(f"{place}: there is a search already; use --resume, --overwrite or another --out")
    if not (quiet or as_json) and settings.tune is not None:
        for note in settings.problem.notes:
            err.print(f"data: {escape(note)}", soft_wrap=True, highlight=False)
        say_cautions(cautions(settings.federation, settings.tune.settings.budget))
    with locked(place), candidate_bars(err, quiet or as_json) as progress:
        tuning = search(settings, folder=place, resume=resume, progress=progress)
    if as_json:
        print(
            json.dumps(
                {"folder": str(place), "metric": tuning.metric, "by": tuning.chosen_by, "candidates": tuning.rows},
                indent=1,
            )
        )
    elif not quiet:
        _show(tuning, place)


def _show(tuning: Tuning, place: Path) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("method", style="bold")
    names = list(dict.fromkeys([tuning.chosen_by, tuning.metric]))
    for column in ("candidates", "diverged", *(f"validation {name}" for name in names)):
        table.add_column(column, justify="right")
    table.add_column("winner")
    for label in tuning.methods:
        best, trials = tuning.winner(label), tuning.of(label)
        chosen = {} if best is None else best.values
        words = ", ".join(f"{name} = {_shown(value)}" for name, value in chosen.items()) or "as it is"
        values = [None if best is None else best.measured[name] for name in names]
        scores = ["-" if value is None else f"{value:.4g}" for value in values]
        lost = sum(trial.diverged for trial in trials)
        table.add_row(escape(label), str(len(trials)), str(lost), *scores, escape(words))
    out.print(table)
    for label in tuning.methods:
        for edge in tuning.edges(label):
            out.print(f"[yellow]{escape(label)}[/]: {escape(edge)}, so that the best may lie beyond", highlight=False)
    out.print(
        f"[dim]means over clients, of the models they deploy at the last round; chosen by the {tuning.chosen_by}[/]"
    )
    out.print(f"all candidates: {escape(str(place / 'tuning.csv'))}", soft_wrap=True, highlight=False)
    out.print(f"the winners: polyfed compare {escape(str(place / 'best.toml'))}", soft_wrap=True, highlight=False)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
