"""What all parties of a run agree on: the run as its server knows it, and the terms that each site gets."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import asdict, dataclass, field
from typing import TypedDict, get_args

import jax
import numpy as np

import polyfed
from polyfed.algorithms import Local
from polyfed.algorithms.contract import Algorithm, get_algorithm
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.core.precision import Compute
from polyfed.deploy.protocol.bounds import ANY, read_kind
from polyfed.deploy.protocol.finish import MODELS as DEPLOYED
from polyfed.deploy.protocol.finish import Finish, read_finetune
from polyfed.deploy.protocol.names import is_name
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.tables import TableSettings, read_preparation
from polyfed.engine.identity import told
from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Bernoulli
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.robust.settings import Aggregate
from polyfed.models import MODELS, Architecture
from polyfed.problem.problem import DType
from polyfed.studies.config import check_problem
from polyfed.studies.newcomers.fitting import DataKind
from polyfed.studies.newcomers.trained import from_json, to_json

ProblemSection = JsonObject
"""A checked section [problem]: model and its options, loss, l2, class weights."""


@dataclass(frozen=True)
class DeployedRun:
    """A run across sites, as its server knows it before any site has reported."""

    name: str
    """sites keep the run's state under it"""
    sites: tuple[str, ...]
    """the roster: who may take part, in the order in which uploads are added up"""
    problem: ProblemSection
    method: Algorithm
    rounds: int
    participation: float | Bernoulli = 1.0
    seed: int = 0
    init: str | None = None
    dtype: DType = "float32"
    compute: Compute | None = None
    privacy: Privacy | None = None
    finish: Finish = field(default_factory=Finish)
    """which models sites deploy at the end"""
    tables: TableSettings = field(default_factory=TableSettings)
    """what is said of the sites' tables"""
    aggregate: Aggregate | None = None
    """the rule by which the server makes one of single uploads; None: their mean"""

    @property
    def architecture(self) -> Architecture:
        return architecture(self.problem)


@dataclass(frozen=True)
class Terms:
    """What one site is told: the method with its own hyper-parameters, the model, and the sizes it must agree on."""

    run: str
    site: str
    method: Algorithm
    """resolved; where sites have values of their own, with this site's"""
    problem: ProblemSection
    kind: DataKind
    """features, targets and labels of the whole federation"""
    longest: int
    """the training rows of the largest site: it decides how batches are laid out"""
    seed: int
    init: str | None
    dtype: DType
    compute: Compute | None = None
    clip: float | None = None
    """the longest upload that privacy allows; None without privacy"""
    noise: float = 0.0
    """the noise that the server adds, in multiples of the clip"""
    rounds: int = 1
    fewest: int = 1
    """the fewest sites in a sum"""
    roster: tuple[str, ...] = ()
    """the sites of the run"""
    secure: bool = False
    """whether uploads are masked"""
    deploy: str = "personal"
    """the model that this site deploys at the end"""
    finetune: FineTune | None = None
    """the personal model is the global one after these steps at the site"""
    alone: MethodJson | None = None
    """how this site trains alone beside the run; None: it does not"""
    preparation: JsonObject | None = None
    """what becomes of the columns of the sites' tables, as JSON"""

    def to_json(self) -> str:
        plain = {**vars(self), "method": method_to_json(self.method), "kind": vars(self.kind)}
        plain["finetune"] = None if self.finetune is None else asdict(self.finetune)
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """The way back; what is no such text is refused."""
        try:
            terms = json.loads(text)
            method = method_from_json(terms["method"])
            method.check()
            kind = DataKind.from_json(read_kind(terms["kind"], ANY))
            terms |= {"method": method, "kind": kind, "roster": _listed(terms["roster"])}
            terms["finetune"] = read_finetune(terms["finetune"])
            made = cls(**terms)
            made.check()
        except (Refused, PolyfedError) as error:
            raise Refused(f"the terms are wrong: {error}") from None
        except Exception as error:
            raise Refused(f"the terms cannot be read ({type(error).__name__})") from None
        for name in (made.run, made.site, *made.roster):
            if not is_name(name):
                raise Refused(f"the terms have a name that is none: {name!r:.80}")
        if made.site not in made.roster or len(set(made.roster)) < max(made.fewest, len(made.roster)):
            raise Refused(
                f"the terms have a roster without this site, with one twice, or of fewer than {made.fewest} sites"
            )
        return made

    def check(self) -> None:
        """Refuse values of another type than they are said to be."""
        for whole in (self.longest, self.seed, self.rounds, self.fewest):
            if isinstance(whole, bool) or not isinstance(whole, int) or not 0 <= whole < 2**53:
                raise ValueError(f"{whole!r} is not a whole number")
        for number in (self.noise, 1.0 if self.clip is None else self.clip):
            if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
                raise ValueError(f"{number!r} is not a number")
        if self.dtype not in get_args(DType) or self.compute not in (None, *get_args(Compute)):
            raise ValueError(f"no precision {self.dtype!r}, {self.compute!r}")
        if not isinstance(self.secure, bool) or not isinstance(self.init, str | None):
            raise ValueError("a flag or a start that is none")
        check_problem(self.problem, "problem")
        read_preparation(self.preparation)
        if self.deploy not in DEPLOYED:
            raise ValueError(f"no model {self.deploy!r}")
        if self.alone is not None:
            if self.alone["name"] != Local.name:
                raise ValueError("training alone by another method")
            method_from_json(self.alone).check()

    def computation(self, round: int) -> str:
        """A digest of what a site computes in a round, whatever the run is called and whoever else takes part."""
        others = ("run", "roster", "fewest", "rounds", "kind", "preparation", "longest", "seed")
        others += ("deploy", "finetune", "alone")  # what happens after the rounds
        plain = json.loads(self.to_json())
        same = {name: value for name, value in plain.items() if name not in others}
        return hashlib.blake2b(json.dumps([same, round], sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def fingerprint(self) -> str:
        """A digest of the terms and of the code that carries them out: both sides must have the same."""
        digest = hashlib.blake2b(self.to_json().encode(), digest_size=16)
        digest.update(code_version(type(self.method)).encode())
        return digest.hexdigest()


def _listed(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("no list")
    return tuple(value)


class MethodJson(TypedDict):
    """An algorithm as JSON."""

    name: str
    hyper_parameters: dict[str, object]


def own_method(method: Algorithm, site: int) -> Algorithm:
    """The method with one site's values where sites have their own: vectors keep their axis, of length one."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[site : site + 1] if np.ndim(leaf) == 1 else leaf, method)


def method_to_json(method: Algorithm) -> MethodJson:
    return {"name": method.name, "hyper_parameters": {name: to_json(value) for name, value in told(method).items()}}


def method_from_json(described: MethodJson) -> Algorithm:
    hyper = {name: from_json(value) for name, value in described["hyper_parameters"].items()}
    return get_algorithm(described["name"])(**hyper)


def architecture(section: ProblemSection) -> Architecture:
    """The model that a section [problem] describes."""
    options = {key: value for key, value in section.items() if key not in ("model", "loss", "l2", "class_weight")}
    return MODELS[section.get("model", "linear")](**options)


def code_version(kind: type[Algorithm]) -> str:
    """This installation's version, and a digest of the algorithm's source."""
    module = inspect.getmodule(kind)
    source = inspect.getsource(module) if module is not None else kind.__qualname__
    return f"{polyfed.__version__}:{hashlib.blake2b(source.encode(), digest_size=8).hexdigest()}"
