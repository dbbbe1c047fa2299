"""The command `polyfed report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from polyfed.cli.options import out
from polyfed.core.files import check_file


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one report page about one or several runs."""
    from polyfed.report import write_report
    from polyfed.report.deployed_runs import outcome_files, write_deployed_report
    from polyfed.studies.run_directory import find_runs, read_run

    check_file(output)
    if deployed := [path for given in runs for path in outcome_files(given)]:
        write_deployed_report(deployed, output)
        out.print(f"report: {escape(str(output))}", soft_wrap=True)
        return
    records = [read_run(path) for given in runs for path in find_runs(given)]
    labels = list(dict.fromkeys(record.label for record in records))
    title = labels[0] if len(labels) == 1 else f"{len(labels)} methods compared"
    out.print(f"report: {escape(str(write_report(records, output, title=title)))}", soft_wrap=True)
