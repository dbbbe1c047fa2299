"""The command `polyfed demo`."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from polyfed.cli.execution import Execution, run_methods
from polyfed.cli.options import AsJson, Change, Quiet, out
from polyfed.core.files import check_folder


def demo(
    change: Change = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the runs go.")] = Path("runs/demo"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods on embedded data: a table, and a report page."""
    from polyfed.studies.config import make_config

    sections = tomllib.loads(files("polyfed.cli").joinpath("demo.toml").read_text())
    check_folder(folder)
    config = make_config(sections, where="demo", changes=change or [])
    if not (quiet or as_json):
        out.print(
            f"[bold]polyfed demo[/]: {len(config.methods)} methods, {len(config.problem)} clients, embedded data\n"
        )
    run_methods(config, Execution(folder, overwrite=True, quiet=quiet, as_json=as_json))
