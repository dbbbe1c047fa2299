"""The contract: what an algorithm says, and what the engine does for it.

A round, as the engine runs it:

    server --broadcast--> client: local(broadcast, state, f, key) -> upload, state
    uploads --sum--> server: update(server, total) -> server
    participants, where the paper needs it: absorb(state, broadcast of the new server) -> state
    personal(server, state) -> the model that this client deploys

An algorithm writes seven functions, and of six hooks those that its paper needs. What the engine must know beside them
(batches, weights, a mixture) it reads from the groups of fields in `shared`, by their types.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax

from polyfed.algorithms import field_types
from polyfed.algorithms.field_types import Kind
from polyfed.compress import Sealed
from polyfed.core import trees
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.trees import Tree
from polyfed.problem.objective import Objective

Server = Any
"""The server's state: a pytree whose field `params`, if it has one, is the global model."""
State = Any
"""A client's state: a pytree, or None. It is kept while the client is absent."""


class Pending(NamedTuple):
    """What `local` gives in place of a state where `absorb` needs more of the round than is kept.

    `absorb` gets it instead of the state, and gives the state that is kept. It lives until the round is over.
    """

    state: State
    within: Tree


@dataclass(frozen=True)
class Upload:
    """All that leaves a client in a round.

    The server receives the sum over clients of `weight * values`, and of `weight`. A weight that is a plain number is
    the same for all and need not travel: the server counts the uploads. `bits` is the size of a message that is not
    sent as it stands; without it, the arrays are counted. `steps` is the number of local iterations, `emphasis` how
    much the client counts in the server's step where that is not its weight: bookkeeping, which does not travel.
    A `silent` client neither sends nor receives; its values must be zero. `sealed` says how compressed values came
    about: a tree like `values` with a `Sealed` in place of each part, so that a real client sends its code.
    """

    values: Tree
    weight: jax.Array | float = 1.0
    bits: jax.Array | int | None = None
    steps: jax.Array | int = 1
    silent: jax.Array | bool = False
    emphasis: jax.Array | None = None
    sealed: Sealed | tuple[Sealed | None, ...] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Total:
    """A round's uploads, summed: weight * values, and weight; how many there were, and of how many clients."""

    values: Tree
    weight: jax.Array
    count: jax.Array
    population: jax.Array

    @property
    def mean(self) -> Tree:
        """The weighted mean of the uploaded values."""
        return trees.scale(1.0 / self.weight, self.values)

    @property
    def share(self) -> jax.Array:
        """The share of all clients that sent something, in the run's precision."""
        real = self.weight.dtype
        return self.count.astype(real) / self.population.astype(real)


class Algorithm(ABC):
    """A method of federated learning: a frozen dataclass of hyper-parameters and a few pure functions.

    None of them loops over clients or touches a device, a file or a clock. Real-valued hyper-parameters are traced, so
    that changing one compiles nothing anew; whole numbers, words and flags are part of the program.
    """

    name: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Refuse hyper-parameters that make no sense, with a sentence that names them.

        Words and flags need no line here: their types say what they may be.
        """

    @abstractmethod
    def init_server(self, params: Tree, /) -> Server:
        """The server's state at the start."""

    @abstractmethod
    def init_client(self, params: Tree, /) -> State:
        """A client's state at the start; None where the method keeps none."""

    @abstractmethod
    def broadcast(self, server: Server, /) -> Tree:
        """What the server sends to every participant."""

    @abstractmethod
    def local(self, broadcast: Tree, state: State, f: Objective, key: jax.Array, /) -> tuple[Upload, State]:
        """A participant's work in a round; its new state, or a `Pending` one."""

    @abstractmethod
    def update(self, server: Server, total: Total, /) -> Server:
        """The server's step, from the sum of the uploads."""

    @abstractmethod
    def personal(self, server: Server, state: State, /) -> Tree:
        """The model that a client deploys."""

    resolve: Callable[..., Algorithm] | None = None
    """`resolve(problem) -> algorithm`: fill in what follows from the problem, such as a theorem's stepsize."""
    prepare: Callable[..., State] | None = None
    """`prepare(state, f, key) -> state`: what a client does alone before round 1, at no bits."""
    absorb: Callable[..., State] | None = None
    """`absorb(state, broadcast, f) -> state`: what a participant does with the new server's broadcast."""
    refine: Callable[..., Tree] | None = None
    """`refine(model, f, key, work) -> model`: the last steps that a client takes on its own rows before it deploys;
    `work` is their batches, or None for the method's own."""
    adapt: Callable[..., Tree] | None = None
    """`adapt(server, f, key, work) -> model`: the model of a client that joins after training, from its own training
    rows. Without it, a newcomer refines the global model or, where nobody does, fine-tunes it."""
    own_share: Callable[..., jax.Array] | None = None
    """`own_share(state) -> number in [0, 1]`: the share of the client's own model in what it deploys. Without it, the
    share is 0 where clients deploy the global model and 1 where they deploy what is in their state."""


def global_model(server: Server) -> Tree | None:
    """The global model in a server's state; None for a method without one."""
    return getattr(server, "params", None)


HOOKS = ("resolve", "prepare", "absorb", "refine", "adapt", "own_share")
REGISTRY: dict[str, type[Algorithm]] = {}
Method = TypeVar("Method", bound=Algorithm)


@dataclass_transform(frozen_default=True)
def algorithm(name: str) -> Callable[[type[Method]], type[Method]]:
    """Register a class as the algorithm `name`: a frozen dataclass, a pytree, and an entry of the registry.

    Fields whose types are real numbers, schedules or compressors are leaves of the pytree; whole numbers, words and
    flags are static. A type that does not tell is refused.
    """

    def register(cls: type[Method]) -> type[Method]:
        cls = dataclass(frozen=True)(cls)
        types = field_types.kinds(cls, name)
        jax.tree_util.register_dataclass(
            cls,
            data_fields=[field for field, kind in types.items() if kind.traced],
            meta_fields=[field for field, kind in types.items() if not kind.traced],
        )
        cls.__init__ = _explained(cls.__init__, cls.__name__, list(types))
        own_check = cls.check

        def check(self: Method) -> None:
            for field, kind in types.items():
                kind.refuse(name, field, getattr(self, field))
            own_check(self)

        cls.check = check
        cls.name = name
        REGISTRY[name] = cls
        return cls

    return register


def _explained(init: Callable[..., None], owner: str, known: list[str]) -> Callable[..., None]:
    """A dataclass's __init__ that names an unknown hyper-parameter, and the known one that may be meant."""

    @functools.wraps(init)
    def explained(self: Algorithm, *values: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise PolyfedError(f"unknown hyper-parameter {name} of {owner}{suggestion(name, known)}")
        if len(values) > len(known):
            raise PolyfedError(f"{owner} has {len(known)} hyper-parameters, found {len(values)} values")
        init(self, *values, **named)

    return explained


def kinds(cls: type[Algorithm]) -> dict[str, Kind]:
    """What the types of an algorithm's hyper-parameters say of them."""
    return field_types.kinds(cls, cls.name)


def hyper_parameters(cls: type[Algorithm] | Algorithm) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of an algorithm, which the decorator `@algorithm` made a dataclass."""
    assert dataclasses.is_dataclass(cls), f"{cls} has no @algorithm"
    return dataclasses.fields(cls)


def get_algorithm(name: str) -> type[Algorithm]:
    if name not in REGISTRY:
        raise PolyfedError(f"unknown algorithm '{name}'{suggestion(name, REGISTRY)}")
    return REGISTRY[name]
