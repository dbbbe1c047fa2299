"""The papers' figures as named experiments: each draws its figure, keeps its data and checks its claims.

base.py       Claim, Outcome, Experiment and the registry     style.py  the house style of figures
reproduce.py  list them, run them                             folder.py what a reproduction writes
runs.py       the convex runs that several figures share
flix.py, flix_claims.py, flix_sines.py, scafflix.py           the experiments of a paper
apfl_methods.py, apfl.py, apfl_nets.py                        APFL: what is shared, linear models, networks
held_out.py   runs that are judged on held-out rows           tuned.py  every method at the best of as many candidates
comparison.py methods side by side: figures, claims, rows
plsgd.py, plsgd_bounds.py, plsgd_regimes.py, plsgd_runs.py    PLSGD, on quadratics with known constants
line_search.py  gradient descent with a line search, for the sines
"""

from __future__ import annotations

from polyfed.papers.reproduce import reproduce, reproduce_list
from polyfed.papers.shared.experiment import REGISTRY, Claim, Experiment, Outcome, Progress, experiment, get
from polyfed.papers.shared.folder import write

__all__ = [
    "REGISTRY",
    "Claim",
    "Experiment",
    "Outcome",
    "Progress",
    "experiment",
    "get",
    "reproduce",
    "reproduce_list",
    "write",
]
