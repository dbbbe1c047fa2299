"""Tuning: the same budget of candidates for every method, chosen on validation rows alone.

space.py    the section [tune], and which candidates a method has
search.py   runs the candidates, each once, and keeps a journal of them
outcome.py  the winners: table, tuning.csv, best.toml
"""

from polyfed.studies.tuning.outcome import Trial, Tuning
from polyfed.studies.tuning.search import tune

__all__ = ["Trial", "Tuning", "tune"]
