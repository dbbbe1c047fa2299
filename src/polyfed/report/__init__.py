"""What a reader sees of runs: the HTML page (`write_report`) and the tables (`comparison_table`, `fairness_table`)."""

from polyfed.report.advice_page import write_advice_page
from polyfed.report.fairness import fairness_table, write_fairness
from polyfed.report.page import write_report
from polyfed.report.table import Table, comparison_table, write_table

__all__ = [
    "Table",
    "comparison_table",
    "fairness_table",
    "write_advice_page",
    "write_fairness",
    "write_report",
    "write_table",
]
