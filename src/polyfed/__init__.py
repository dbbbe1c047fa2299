"""polyfed: personalized federated learning.

Nothing is loaded before it is used: `import polyfed` starts neither JAX nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyfed import algorithms, data, models, theory, track
    from polyfed.core.errors import PolyfedError
    from polyfed.core.schedules import Decay, Inverse, InverseStep
    from polyfed.data.federation import Federation
    from polyfed.data.population import Population
    from polyfed.engine.callbacks import Callback
    from polyfed.engine.local_models import local_models
    from polyfed.engine.measure import FineTune
    from polyfed.engine.participation import Bernoulli
    from polyfed.engine.privacy.mechanism import Privacy
    from polyfed.engine.result import Result
    from polyfed.engine.robust.attack import Attack
    from polyfed.engine.robust.settings import Aggregate
    from polyfed.engine.simulate import simulate
    from polyfed.engine.states.bank import LocalModelBank
    from polyfed.problem import metrics
    from polyfed.problem.problem import Problem
    from polyfed.studies.advice.advice import Advice, advise
    from polyfed.studies.compare_results import gains
    from polyfed.studies.consensus import consensus
    from polyfed.studies.newcomers.personalize import Newcomers, personalize
    from polyfed.studies.saved_models import load
    from polyfed.studies.tuning.outcome import Tuning
    from polyfed.studies.tuning.search import tune

__version__ = "0.2.0"

__all__ = [
    "Advice",
    "Aggregate",
    "Attack",
    "Bernoulli",
    "Callback",
    "Decay",
    "Federation",
    "FineTune",
    "Inverse",
    "InverseStep",
    "LocalModelBank",
    "Newcomers",
    "PolyfedError",
    "Population",
    "Privacy",
    "Problem",
    "Result",
    "Tuning",
    "advise",
    "algorithms",
    "consensus",
    "data",
    "gains",
    "load",
    "local_models",
    "metrics",
    "models",
    "personalize",
    "simulate",
    "theory",
    "track",
    "tune",
]

_HOMES = {
    "Advice": "studies.advice.advice",
    "Aggregate": "engine.robust.settings",
    "Attack": "engine.robust.attack",
    "Bernoulli": "engine.participation",
    "Callback": "engine.callbacks",
    "Decay": "core.schedules",
    "Federation": "data.federation",
    "FineTune": "engine.measure",
    "Inverse": "core.schedules",
    "InverseStep": "core.schedules",
    "LocalModelBank": "engine.states.bank",
    "Newcomers": "studies.newcomers.personalize",
    "PolyfedError": "core.errors",
    "Population": "data.population",
    "Privacy": "engine.privacy.mechanism",
    "Problem": "problem.problem",
    "Result": "engine.result",
    "Tuning": "studies.tuning.outcome",
    "advise": "studies.advice.advice",
    "consensus": "studies.consensus",
    "gains": "studies.compare_results",
    "load": "studies.saved_models",
    "local_models": "engine.local_models",
    "personalize": "studies.newcomers.personalize",
    "simulate": "engine.simulate",
    "tune": "studies.tuning.search",
}
"""Where the public names are defined; the others are packages."""
_PACKAGES = {"metrics": "problem.metrics"}
"""Where the packages are whose public name is not their own."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from polyfed.core.errors import suggestion

        raise AttributeError(f"module 'polyfed' has no attribute '{name}'{suggestion(name, __all__)}")
    if name in _HOMES:
        value = getattr(import_module(f"polyfed.{_HOMES[name]}"), name)
    else:
        value = import_module(f"polyfed.{_PACKAGES.get(name, name)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
