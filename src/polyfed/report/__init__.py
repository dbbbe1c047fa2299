"""What a reader sees of runs: `write_report` makes the HTML page, `comparison_table` and `write_table` the table."""

from polyfed.report.page import write_report
from polyfed.report.table import Table, comparison_table, write_table

__all__ = ["Table", "comparison_table", "write_report", "write_table"]
