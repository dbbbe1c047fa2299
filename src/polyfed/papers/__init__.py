"""The papers' figures and tables as named experiments: each draws its figure, stores its data and checks its claims.

apfl, fedbc, flix, plsgd, scafflix  a package per paper
shared                              what an experiment is, and what several papers use
catalogue                           every paper's experiments, by name
reproduce                           runs them: `polyfed reproduce`
"""

from __future__ import annotations

from polyfed.core.extras import extra_package

extra_package("matplotlib", "figures", "polyfed reproduce")

from polyfed.papers.catalogue import EXPERIMENTS, get, reproduce_list
from polyfed.papers.reproduce import redraw, reproduce
from polyfed.papers.shared.claims import Claim
from polyfed.papers.shared.experiment import Experiment, ExperimentProgress, Measured, Outcome, experiment
from polyfed.papers.shared.folder import write

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "ExperimentProgress",
    "Measured",
    "Outcome",
    "experiment",
    "get",
    "redraw",
    "reproduce",
    "reproduce_list",
    "write",
]
