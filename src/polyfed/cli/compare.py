"""The command `polyfed compare`."""

from __future__ import annotations

from pathlib import Path

from polyfed.cli.execution import Execution, join_hosts, run_methods
from polyfed.cli.options import AsJson, Change, ConfigFile, HostIndex, Hosts, Overwrite, Quiet, Resume, RunFolder


def compare(
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
    """Run several methods side by side: a table like a paper's, as CSV, Markdown and LaTeX too."""
    join_hosts(hosts, host_index)
    from polyfed.studies.config import read_config

    settings = read_config(config, change or [])
    run_methods(settings, Execution(folder or Path("runs") / config.stem, resume, overwrite, quiet, as_json))
