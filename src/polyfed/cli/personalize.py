"""The command `polyfed personalize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, err, out

if TYPE_CHECKING:
    from polyfed.studies.newcomers import Newcomers

MOST = 40
"""The rows that a terminal is given; the CSV file has all."""


def personalize(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    data: Annotated[
        Path, typer.Argument(help="The newcomers: a config with [data], or a csv, parquet, npz or saved file.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the models go; by default newcomers/ in the run.")
    ] = None,
    client: Annotated[list[str] | None, typer.Option("--client", help="Only this newcomer; may be repeated.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Local steps; by default the method's own rule.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="The column to predict; by default as in the run's data.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="The column of client names; by default as in the run's data.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give clients that join after training a model each, by the method's own rule."""
    from polyfed.studies.newcomers import personalize as join
    from polyfed.studies.newcomers.files import read_newcomers
    from polyfed.studies.newcomers.trained import read

    read(run)  # a run that nobody can join is refused before any data is read
    found = join(run, read_newcomers(data, run, clients=client, target=target, by=by), steps=steps)
    place = found.save(folder or run / "newcomers")
    if as_json:
        print(json.dumps({"folder": str(place), "metric": found.metric, "newcomers": found.rows}, indent=1))
        return
    show(found, place)


def show(found: Newcomers, place: Path) -> None:
    """The newcomers' table, and where their models are."""
    for name in found.broken:
        err.print(f"[yellow]{escape(name)}: its model is not finite; fewer --steps may help[/]")
    out.print(_table(found))
    _explain(found)
    out.print(f"models: {escape(str(place))}", soft_wrap=True, highlight=False)


def _table(found: Newcomers) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("client", style="bold")
    for column in ("train rows", f"{found.split or 'held-out'} rows", f"global {found.metric}", f"own {found.metric}"):
        table.add_column(column, justify="right")
    for row in found.rows[:MOST]:
        values = [_shown(row[f"{model}_{found.metric}"]) for model in ("global", "personal")]
        table.add_row(escape(row["client"]), str(row["train_rows"]), str(row["rows"]), *values)
    return table


def _explain(found: Newcomers) -> None:
    """What the figures are of, and the mean over more than one newcomer."""
    if len(found.rows) > MOST:
        out.print(f"... and {len(found.rows) - MOST} more in newcomers.csv", highlight=False)
    if found.split is None:
        out.print("[dim]no rows were held out, so that nothing could be measured[/]")
        return
    means = {}
    for model in ("global", "personal"):
        values = [row[f"{model}_{found.metric}"] for row in found.rows]
        known = [value for value in values if value is not None]
        means[model] = _shown(sum(known) / len(known) if known else None)
    if len(found.rows) > 1:
        out.print(f"mean over {len(found.rows)}: global {means['global']}, own {means['personal']}", highlight=False)
    out.print(f"[dim]{found.metric} on each newcomer's own {found.split} rows, which no model was fitted to[/]")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
