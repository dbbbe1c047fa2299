"""The command `polyfed reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, Quiet, err, out
from polyfed.core.errors import PolyfedError
from polyfed.core.files import check_folder

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A figure such as flix/fig2, or a paper such as flix.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version: one dataset, fewer rounds.")] = False,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("runs/papers"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a stopped reproduction ended.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew where one was stopped.")] = False,
    again: Annotated[
        bool, typer.Option("--redraw", help="Judge and draw the rows in --out again; run nothing.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a paper's figure: its data, its picture, and whether its claims hold.

    The exit code says whether it could be done, not what was found: a claim that does not hold is a result.
    """
    from polyfed.papers import redraw
    from polyfed.papers import reproduce as run_experiments

    if listing or name is None:
        _list_experiments(as_json)
        return

    check_folder(folder)

    def say(what: str, done: int, total: int) -> None:
        if not (quiet or as_json):
            err.print(f"[dim]{escape(what)}: {done} of {total}[/]", highlight=False)

    if again and (quick or resume or overwrite):
        raise PolyfedError("--redraw runs nothing: leave out --quick, --resume and --overwrite")
    if again:
        reproductions = redraw(name, folder)
    else:
        reproductions = run_experiments(name, folder, quick, say, resume=resume, overwrite=overwrite)
    if as_json:
        claims = {
            experiment.name: [claim.record for claim in outcome.claims] for experiment, _, outcome in reproductions
        }
        print(json.dumps(claims, indent=1))
        return
    for experiment, place, outcome in reproductions:
        out.print(f"[bold]{escape(experiment.name)}[/]: {escape(experiment.title)}", highlight=False)
        for claim in outcome.claims:
            mark = f"[{COLOURS[claim.verdict]}]{claim.verdict}[/]"
            words = f"{claim.measured}; {claim.basis}"
            out.print(f"  {mark}: {escape(claim.text)} [dim]({escape(words)})[/]", highlight=False)
        out.print(f"  {escape(str(place))}", soft_wrap=True, highlight=False)


def _list_experiments(as_json: bool) -> None:
    from polyfed.papers import reproduce_list

    rows = reproduce_list()
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("name", style="bold")
    table.add_column("what it shows")
    for row in rows:
        table.add_row(row["name"], escape(row["title"]))
    out.print(table)
