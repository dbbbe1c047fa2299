"""`result.report`: the page of a run that was made in Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

from polyfed.core.files import check_file
from polyfed.engine.result import Result
from polyfed.report.page import write_report
from polyfed.studies.kept_result import save_result
from polyfed.studies.run_directory import read_run


def write_result_report(result: Result, path: str | Path) -> Path:
    """Write the page; the run's folder, from which it is read, is a temporary one."""
    path = Path(path)
    check_file(path)
    with tempfile.TemporaryDirectory() as place:
        record = read_run(save_result(result, Path(place) / "run"))
        return write_report([record], path, title=record.label)
