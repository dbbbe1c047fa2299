"""The methods of the leaderboard: their fixed options, and the values that tuning tries."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polyfed.algorithms import REGISTRY
from polyfed.algorithms.contract import Algorithm, get_algorithm, kinds
from polyfed.algorithms.shared.local_work import Steps
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.engine.measure import FineTune
from polyfed.studies.leaderboard.federations import Arena
from polyfed.studies.search_space import tune_plan

BUDGET = 24
"""Candidates per method."""
LOCAL_EPOCHS = 50
"""of the pure local models, for the methods that mix them in, at the middle of the range of stepsizes"""


@dataclass(frozen=True)
class Contender:
    """A method, apart from what the federation decides: local steps, and the range of stepsizes."""

    algorithm: str
    fixed: Mapping[str, object] = field(default_factory=dict)
    space: Mapping[str, object] = field(default_factory=dict)
    """what is tuned beside the stepsize"""
    rate: str = "lr"
    """the stepsize that is tuned"""
    finetuned: bool = False
    """deploy the global model after 10 steps of every client"""

    def candidates(self, label: str, arena: Arena) -> list[Algorithm]:
        """As many for every method: the stepsize alone, or with another hyper-parameter."""
        cls = get_algorithm(self.algorithm)
        known = kinds(cls)
        low, high = arena.rates
        rate = {self.rate: {"low": low, "high": high, "log": True}}
        plan = tune_plan({"budget": BUDGET, "space": {label: rate | dict(self.space)}}, {label: cls}, "leaderboard")
        steps: JsonObject = {"local_steps": arena.local_steps} if "local_steps" in known else {}
        if "plm_epochs" in known:
            steps |= {"plm_epochs": LOCAL_EPOCHS, "plm_lr": (low * high) ** 0.5}
        made = [cls(**{**steps, **self.fixed, **values}) for _, values in plan.candidates(label)]
        for each in made:
            each.check()
        return made

    def finetune(self, candidate: Algorithm) -> FineTune | None:
        """Ten more steps at the candidate's own stepsize."""
        if not self.finetuned:
            return None
        assert isinstance(candidate, Steps)
        assert isinstance(candidate.lr, float)
        return FineTune(10, candidate.lr, 20)


SHARES = [0.02, 0.2, 0.6, 0.98]
INNER = [0.001, 0.01, 0.1, 1.0]
SERVER = [0.3, 1.0, 2.0, 4.0]
PENALTIES = [0.001, 0.03, 1.0, 30.0]
COMPRESSED = {"compressor": {"name": "natural"}}
CONTENDERS: dict[str, Contender] = {
    "local": Contender("local"),
    "fedavg": Contender("fedavg"),
    "fedavg, uniform": Contender("fedavg", {"weighting": "uniform"}),
    "fedavg, fine-tuned": Contender("fedavg", finetuned=True),
    "localsgd": Contender("localsgd", {}, {"server_lr": SERVER}),
    "minibatchsgd": Contender("minibatchsgd"),
    "fedprox": Contender("fedprox", {}, {"mu": [0.0001, 0.003, 0.1, 3.0]}),
    "scaffold": Contender("scaffold"),
    "qfedavg": Contender("qfedavg", {}, {"q": [0.001, 0.03, 0.3, 3.0]}),
    "scaffnew": Contender("scaffnew", {"p": 0.1, "batch": 20}),
    "scafflix": Contender("scafflix", {"p": 0.1, "batch": 20}, {"alpha": SHARES}),
    "flix": Contender("flix", {"lr": 1.0, "batch": 20}, {"alpha": SHARES}, "local_lr"),
    "dcgd": Contender("dcgd", COMPRESSED, {"alpha": SHARES}),
    "diana": Contender("diana", COMPRESSED, {"alpha": SHARES}),
    "apfl": Contender("apfl", {}, {"alpha": SHARES}),
    "ditto": Contender("ditto", {}, {"penalty": PENALTIES}),
    "fedbc": Contender("fedbc", {}, {"dual_lr": [1e-7, 1e-5, 1e-3, 1e-1]}),
    "perfedbc": Contender("perfedbc", {"dual_lr": 1e-4}, {"inner_lr": INNER}),
    "plsgd": Contender("plsgd", {}, {"alpha": [0.1, 1.0, 10.0, 100.0]}),
    "perfedavg": Contender("perfedavg", {}, {"inner_lr": INNER}),
    "fomaml": Contender("fomaml", {}, {"inner_lr": INNER}),
    "reptile": Contender("reptile", {}, {"server_lr": SERVER}),
    "pfedme": Contender("pfedme", {}, {"penalty": [0.1, 1.0, 10.0, 100.0]}),
    "l2gd": Contender("l2gd", {"p": 0.1, "batch": 20}, {"penalty": PENALTIES}),
}
"""Every method of the registry, by the label of its row; some in two ways."""


def contenders(labels: list[str] | None = None, file: Path | None = None) -> dict[str, Contender]:
    """The methods of these labels, by default all; and those that a TOML file adds.

    The file has a table [LABEL] for each: `name`, the algorithm; `space`, what is tuned beside the stepsize, as in
    [tune.space.NAME]; `rate`, the name of the stepsize, by default lr; `finetuned`; anything else is a hyper-parameter.
    A method of the registry that has no row yet is tuned by its stepsize alone.
    """
    known = CONTENDERS | {name: Contender(name) for name in REGISTRY if name not in CONTENDERS}
    added = {} if file is None else _read(file)
    known |= added
    for label in labels or []:
        if label not in known:
            raise PolyfedError(f"no method called '{label}' stands on the leaderboard{suggestion(label, known)}")
    return {label: known[label] for label in labels or [*added, *(label for label in known if label not in added)]}


def _read(file: Path) -> dict[str, Contender]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PolyfedError(f"{file}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolyfedError(f"{file}: is no TOML file: {error}") from None
    added = {}
    for label, given in tables.items():
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise PolyfedError(f"{file}: [{label}] must be a table with the name of an algorithm")
        options = dict(given)
        name, space, rate = options.pop("name"), options.pop("space", {}), options.pop("rate", "lr")
        if label in CONTENDERS:
            raise PolyfedError(f"{file}: '{label}' stands on the leaderboard already; choose another label")
        get_algorithm(name)
        if not isinstance(space, dict):
            raise PolyfedError(f"{file}: [{label}] has a space that is no table")
        finetuned = bool(options.pop("finetuned", False))
        added[label] = Contender(name, options, space, rate, finetuned)
    return added
