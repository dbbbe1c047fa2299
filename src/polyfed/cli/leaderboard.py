"""The commands `polyfed leaderboard run`, `merge`, `draw` and `list`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.groups import Commands
from polyfed.cli.options import err, out
from polyfed.core.errors import USER_ERROR, PolyfedError, suggestion

if TYPE_CHECKING:
    from polyfed.studies.leaderboard import Cell, Contender

leaderboard_app = typer.Typer(
    cls=Commands,
    help="Every method on the same federations: same tuning, same bits, last rounds of all clients.",
    no_args_is_help=True,
)
TableFile = Annotated[Path, typer.Option("--table", help="The CSV file with a row per federation, method and seed.")]
TABLE = Path("leaderboard.csv")


@leaderboard_app.command("run")
def leaderboard_run_command(
    federation: Annotated[list[str] | None, typer.Argument(help="Federations; by default all.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method's label; may be repeated. By default all.")] = None,
    add: Annotated[Path | None, typer.Option(help="A TOML file with methods to add: a table [LABEL] each.")] = None,
    table: TableFile = TABLE,
    again: Annotated[bool, typer.Option("--again", help="Also run cells that the table has.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at a time, each a process with one core.")] = 1,
) -> None:
    """Run the cells that the table does not have yet; each is written as soon as it ends."""
    from polyfed.core.lock import locked
    from polyfed.studies.leaderboard import FEDERATIONS, Board, contenders
    from polyfed.studies.leaderboard.cell import spec_of

    for name in federation or []:
        if name not in FEDERATIONS:
            raise PolyfedError(f"unknown federation '{name}'{suggestion(name, FEDERATIONS)}")
    wanted, failed = contenders(method, add), 0
    with locked(table.resolve().parent / f".{table.name}"):
        board = Board.read(table)
        places = [
            (name, label)
            for name in federation or FEDERATIONS
            for label, contender in wanted.items()
            if again or not board.has(name, label, spec_of(FEDERATIONS[name], contender))
        ]
        for cells in _ran(places, wanted, jobs, [] if add is None else ["--add", str(add)]):
            failed += not cells
            if cells:
                board.put(cells)
    out.print(f"{len(board.cells)} rows in {escape(str(table))}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(USER_ERROR)


def _ran(
    places: list[tuple[str, str]], wanted: Mapping[str, Contender], jobs: int, more: list[str]
) -> Iterator[list[Cell]]:
    """The rows of each cell as it ends; none where it could not be run, which is said."""
    from polyfed.studies.leaderboard import FEDERATIONS, run_cell
    from polyfed.studies.leaderboard.processes import side_by_side

    if jobs > 1:
        for done, (_, cells) in enumerate(side_by_side(places, jobs, more), start=1):
            _say(f"{done} of {len(places)} cells")
            yield cells
        return
    for name, label in places:
        title = f"{name}, {label}"
        try:
            yield run_cell(name, FEDERATIONS[name], label, wanted[label], lambda words, t=title: _say(f"{t}: {words}"))
        except PolyfedError as error:
            _say(f"{title}: not run: {error}")
            yield []


@leaderboard_app.command("merge")
def leaderboard_merge_command(
    parts: Annotated[list[Path], typer.Argument(help="Tables that other machines or processes wrote.")],
    table: TableFile = TABLE,
) -> None:
    """Put the cells of other tables into this one, in the place of its own."""
    from polyfed.core.lock import locked
    from polyfed.studies.leaderboard import Board

    for part in parts:
        if not part.exists():
            raise PolyfedError(f"{part}: there is no such file")
    new = [cell for part in parts for cell in Board.read(part).cells]
    rows = Counter((cell.federation, cell.method, cell.seed) for cell in new)
    if twice := [where for where, count in rows.items() if count > 1]:
        name, label, seed = twice[0]
        raise PolyfedError(f"{name}, {label}, seed {seed} is in the given tables {rows[twice[0]]} times, expected once")
    with locked(table.resolve().parent / f".{table.name}"):
        board = Board.read(table)
        board.put(new)
    out.print(f"{len(board.cells)} rows in {escape(str(table))}", highlight=False, soft_wrap=True)


@leaderboard_app.command("draw")
def leaderboard_draw_command(
    table: TableFile = TABLE,
    page: Annotated[Path, typer.Option("--page", help="The Markdown page to write, or to renew.")] = Path(
        "leaderboard.md"
    ),
) -> None:
    """Redraw the page from the table."""
    from polyfed.studies.leaderboard import Board, write_page

    if not table.exists():
        raise PolyfedError(f"{table}: there is no such file; `polyfed leaderboard run` makes it")
    write_page(Board.read(table), page)
    out.print(escape(str(page)), soft_wrap=True, highlight=False)


@leaderboard_app.command("list")
def leaderboard_list_command(table: TableFile = TABLE) -> None:
    """The federations, their size, and the cells that the table has of each."""
    from polyfed.studies.leaderboard import FEDERATIONS, Board, contenders

    board, every = Board.read(table), contenders()
    shown = Table("federation", "what it is", "cells", box=None, pad_edge=False)
    for name, arena in FEDERATIONS.items():
        shown.add_row(name, arena.words, f"{len(board.of(name))} of {len(every)}")
    out.print(shown)


def _say(words: str) -> None:
    err.print(escape(words), highlight=False, soft_wrap=True)
