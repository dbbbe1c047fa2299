"""What `run`, `compare` and `demo` share: several hosts, progress bars, and the table at the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from polyfed.cli.options import err, out
from polyfed.core.files import check_folder
from polyfed.core.lock import locked
from polyfed.core.worker import is_first, this_worker

if TYPE_CHECKING:
    from polyfed.studies.config import Config
    from polyfed.studies.experiment import Options
    from polyfed.studies.run_directory import RunRecord


@dataclass(frozen=True)
class Execution:
    """Where runs go, what to do with runs that are there already, and how much to print."""

    folder: Path
    resume: bool = False
    overwrite: bool = False
    quiet: bool = False
    as_json: bool = False

    @contextmanager
    def options(self) -> Iterator[Options]:
        """Options for `studies.experiment`, with progress bars on the terminal while they are in use."""
        from polyfed.cli.progress import progress_bars
        from polyfed.studies.experiment import Options

        if is_first():
            check_folder(self.folder)
        silent = self.quiet or self.as_json or not is_first()
        with locked(self.folder) if is_first() else nullcontext(), progress_bars(err, silent) as progress:
            say = (lambda text: None) if silent else (lambda text: err.print(escape(text), soft_wrap=True))
            yield Options(resume=self.resume, overwrite=self.overwrite, progress=progress, say=say)

    def show(self, records: list[RunRecord]) -> None:
        """Print the outcome as a table or as JSON. Of several processes only the first has records to show."""
        from polyfed.cli.progress import terminal_table
        from polyfed.report import comparison_table
        from polyfed.report.cautions import without_metric
        from polyfed.report.headline import headline
        from polyfed.report.methods import group

        if not records:
            return
        if self.as_json:
            print(json.dumps({"folder": str(self.folder), "runs": [record.summary for record in records]}, indent=1))
            return
        for record in records:
            if record.summary["diverged"]:
                err.print(f"[yellow]{escape(record.label)} diverged and was stopped early[/]")
        if self.quiet:
            return
        out.print()
        out.print(terminal_table(comparison_table(records), out.width))
        methods = group(records)
        story = headline(methods)
        out.print(f"\n{escape(' '.join([story.sentence, *story.details]))}", highlight=False)
        for who, names in without_metric(methods):
            out.print(f"{escape(who)}: {escape(names)}", highlight=False)
        out.print(f"[dim]{escape(methods[0].figure)}[/]", highlight=False)
        out.print(f"report: {escape(str(self.folder / 'report.html'))}", soft_wrap=True, highlight=False)


def run_methods(config: Config, execution: Execution) -> None:
    """Run every method of a config, write the tables and the report, and show the outcome."""
    from polyfed.report import write_fairness, write_report, write_table
    from polyfed.studies import experiment

    folder = execution.folder
    with execution.options() as options:
        records = experiment.compare(config, folder, options)
        if records:
            write_table(records, folder)
            write_fairness(records, folder)
            write_report(records, folder / "report.html", title=f"{len(config.methods)} methods compared")
    execution.show(records)


def join_hosts(hosts: str | None, index: int | None) -> None:
    """Return if this process does the work. Where several hosts share it, guard a worker here, and exit with it."""
    if this_worker() is not None:
        return
    from polyfed.engine.hosts.guard import guarded
    from polyfed.engine.hosts.team import find_team

    team = find_team(hosts, index)
    if team is not None:
        raise typer.Exit(guarded(team, sys.argv[1:]))
