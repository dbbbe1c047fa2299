"""The command `polyfed personalize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, err, out
from polyfed.core.files import check_folder

if TYPE_CHECKING:
    from polyfed.studies.newcomers import Newcomers

MOST = 40
"""The most rows that the terminal shows; the CSV file has all."""


def personalize(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    data: Annotated[
        Path,
        typer.Argument(help="The newcomers: a config with the section data, or a csv, parquet, npz or saved file."),
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

    read(run)  # refuses a run that nobody can join before any data is read
    check_folder(folder or run / "newcomers")
    newcomers = join(run, read_newcomers(data, run, clients=client, target=target, by=by), steps=steps)
    place = newcomers.save(folder or run / "newcomers")
    if as_json:
        print(json.dumps({"folder": str(place), "metric": newcomers.metric, "newcomers": newcomers.rows}, indent=1))
        return
    show(newcomers, place)


def show(newcomers: Newcomers, place: Path) -> None:
    """The newcomers' table, and where their models are."""
    for name in newcomers.broken:
        err.print(f"[yellow]{escape(name)}: its model is not finite; fewer --steps may help[/]")
    out.print(_table(newcomers))
    _explain(newcomers)
    out.print(f"models: {escape(str(place))}", soft_wrap=True, highlight=False)


def _table(newcomers: Newcomers) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("client", style="bold")
    for column in (
        "train rows",
        f"{newcomers.split or 'held-out'} rows",
        f"global {newcomers.metric}",
        f"own {newcomers.metric}",
    ):
        table.add_column(column, justify="right")
    for row in newcomers.rows[:MOST]:
        values = [_shown(row[f"{model}_{newcomers.metric}"]) for model in ("global", "personal")]
        table.add_row(escape(row["client"]), str(row["train_rows"]), str(row["rows"]), *values)
    return table


def _explain(newcomers: Newcomers) -> None:
    """What the figures are of, and the mean over more than one newcomer."""
    if len(newcomers.rows) > MOST:
        out.print(f"... and {len(newcomers.rows) - MOST} more in newcomers.csv", highlight=False)
    if newcomers.split is None:
        out.print("[dim]no rows were held out, so that nothing could be measured[/]")
        return
    means = {}
    for model in ("global", "personal"):
        values = [row[f"{model}_{newcomers.metric}"] for row in newcomers.rows]
        known = [value for value in values if value is not None]
        means[model] = _shown(sum(known) / len(known) if known else None)
    if len(newcomers.rows) > 1:
        out.print(
            f"mean over {len(newcomers.rows)}: global {means['global']}, own {means['personal']}", highlight=False
        )
    out.print(f"[dim]{newcomers.metric} on each newcomer's own {newcomers.split} rows, which no model was fitted to[/]")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
