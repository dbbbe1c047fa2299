"""What the commands share: the consoles, and options that several of them take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from polyfed.data.cautions import Caution

out, err = Console(), Console(stderr=True)

ConfigFile = Annotated[Path, typer.Argument(help="A TOML file with the sections data, problem, algorithm and run.")]
Change = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a key of the config; may be repeated."),
]
RunFolder = Annotated[Path | None, typer.Option("--out", "-o", help="The run directory; by default runs/NAME.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint, to the same numbers.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no table.")]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        metavar="HOST:PORT,HOST,...",
        help="Spread the clients over a process on each of these hosts; start the same command on each. "
        "Under srun or mpirun it is not needed; `off` runs one process all the same.",
    ),
]
HostIndex = Annotated[
    int | None,
    typer.Option("--host-index", help="Which of --hosts this is, from 0; by default the one with this address."),
]


def say_cautions(cautions: Iterable[Caution]) -> None:
    """Say what makes results doubtful, on the terminal, beside what is printed for programs."""
    for caution in cautions:
        err.print(f"[yellow]caution[/]: {escape(str(caution))}", soft_wrap=True, highlight=False)
