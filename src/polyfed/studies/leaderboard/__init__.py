"""Every method on the same federations: tuned by as many candidates, stopped by bits, judged at the end.

federations.py  the federations, with the budget of each
contenders.py   the methods, with what tuning tries of each
cell.py         runs one method on one federation: a cell
board.py        the table of all cells, in a CSV file
ranks.py        who is better for sure, and the ranks that follow
page.py         the page
"""

from polyfed.studies.leaderboard.board import Board
from polyfed.studies.leaderboard.cell import Cell, run_cell
from polyfed.studies.leaderboard.contenders import CONTENDERS, Contender, contenders
from polyfed.studies.leaderboard.federations import FEDERATIONS, Arena
from polyfed.studies.leaderboard.page import page, write_page

__all__ = [
    "CONTENDERS",
    "FEDERATIONS",
    "Arena",
    "Board",
    "Cell",
    "Contender",
    "contenders",
    "page",
    "run_cell",
    "write_page",
]
