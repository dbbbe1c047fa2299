"""The command `polyfed run`."""

from __future__ import annotations

from pathlib import Path

from polyfed.cli.execution import Execution, join_hosts
from polyfed.cli.options import AsJson, Change, ConfigFile, HostIndex, Hosts, Overwrite, Quiet, Resume, RunFolder


def run(
    config: ConfigFile,
    change: Change = None,
    folder: RunFolder = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    hosts: Hosts = None,
    host_index: HostIndex = None,
) -> None:
    """Run one algorithm, and write its run directory."""
    join_hosts(hosts, host_index)
    from polyfed.report import write_report
    from polyfed.studies import experiment
    from polyfed.studies.config import read_config

    settings = read_config(config, change or [])
    folder = folder or Path("runs") / config.stem
    execution = Execution(folder, resume, overwrite, quiet, as_json)
    with execution.options() as options:
        records = experiment.run(settings, folder, options)
        if records:
            write_report(records, folder / "report.html", title=records[0].label)
    execution.show(records)
