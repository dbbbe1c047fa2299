"""The command `polyfed demo`."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.execution import Execution, run_methods
from polyfed.cli.options import AsJson, Change, Quiet, out
from polyfed.core.files import check_folder


class Demo(StrEnum):
    """The embedded data; each has a config in demos/."""

    airlines = "airlines"
    digits = "digits"


QUESTION = {
    Demo.airlines: "which flight leaves late? 16 airlines, 13,305 flights",
    Demo.digits: "handwritten digits, spread unevenly over 20 clients",
}


def demo(
    data: Annotated[Demo, typer.Argument(help="The data: flights of 16 airlines, or handwritten digits.")] = (
        Demo.airlines
    ),
    change: Change = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the runs go; by default runs/demo or runs/demo-digits.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods on embedded data: a table, and a report page."""
    from polyfed.studies.config import make_config

    place = folder or Path("runs") / ("demo" if data == Demo.airlines else f"demo-{data}")
    sections = tomllib.loads(files("polyfed.cli").joinpath("demos", f"{data}.toml").read_text())
    check_folder(place)
    config = make_config(sections, where="demo", changes=change or [])
    if not (quiet or as_json):
        out.print(f"[bold]polyfed demo[/]: {QUESTION[data]}; {len(config.methods)} methods\n", highlight=False)
    run_methods(config, Execution(place, overwrite=True, quiet=quiet, as_json=as_json))
