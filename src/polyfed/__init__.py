"""polyfed: personalized federated learning."""

from polyfed import algorithms, data, models
from polyfed.data import Federation, Population
from polyfed.diagnostics import consensus
from polyfed.engine import Bernoulli, FineTune, Result, simulate
from polyfed.errors import PolyfedError
from polyfed.newcomers import Newcomers, personalize
from polyfed.privacy import Privacy
from polyfed.problem import Problem
from polyfed.schedules import Decay, Inverse, InverseStep
from polyfed.tuning import Tuning, tune

__version__ = "0.1.0"

__all__ = [
    "Bernoulli",
    "Decay",
    "Federation",
    "FineTune",
    "Inverse",
    "InverseStep",
    "Newcomers",
    "PolyfedError",
    "Population",
    "Privacy",
    "Problem",
    "Result",
    "Tuning",
    "algorithms",
    "consensus",
    "data",
    "models",
    "personalize",
    "simulate",
    "tune",
]
