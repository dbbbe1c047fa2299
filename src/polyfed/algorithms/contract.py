"""The contract: what an algorithm says, and what the engine does for it.

A round, as the engine runs it:

    server --broadcast--> client: local(broadcast, state, f, key) -> upload, state
    uploads --sum--> server: update(server, total) -> server
    participants, where the paper needs it: absorb(state, broadcast of the new server) -> state
    personal(server, state) -> the model that this client deploys

A client that joins later: adapt(server, f, key) -> its model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax

from polyfed.algorithms.shared import newcomer
from polyfed.core import trees
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batching, Objective

Server = Any
"""The server's state: a pytree whose field `params`, if it has one, is the global model."""
State = Any
"""A client's state: a pytree, or None. It is kept while the client is absent."""
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """All that leaves a client in a round.

    The server receives the sum over clients of `weight * values`, and of `weight`. A weight that is a plain number is
    the same for all and need not travel: the server counts the uploads. `bits` is what a message takes in all that is
    not sent as it stands; without it, what is there is counted. `steps` is the number of local iterations, `emphasis`
    how much the client counts in the server's step, where that is not its weight: bookkeeping, which does not travel.
    A `silent` client neither sends nor receives; its values must be zero. `sealed` says how compressed values came
    about: a tree like `values`, with a `compress.Sealed` in place of each part, so that a real client sends its code.
    """

    values: Tree
    weight: jax.Array | float = 1.0
    bits: jax.Array | None = None
    steps: jax.Array | int = 1
    silent: jax.Array | bool = False
    emphasis: jax.Array | None = None
    sealed: Any = None


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


class Algorithm(ABC):
    """A method of federated learning: a frozen dataclass of hyper-parameters and a few pure functions.

    None of them loops over clients or touches a device, a file or a clock. Real-valued hyper-parameters are traced, so
    that changing one compiles nothing anew; whole numbers, words and flags are part of the program.
    """

    name: ClassVar[str]
    prepare: Callable[..., State] | None = None
    """`prepare(state, f, key) -> state`: what a client does alone before round 1, at no bits."""
    absorb: Callable[..., State] | None = None
    """`absorb(state, broadcast, f) -> state`: what a participant does with the new server's broadcast."""

    resolve: Callable[..., Any] | None = None
    """`resolve(problem) -> algorithm`: fill in what follows from the problem, such as a theorem's stepsize."""
    mixture: bool = False
    """Whether clients deploy alpha x + (1 - alpha) x_i*, and the method minimises the mean of f_i there."""
    deploys_adapted: bool | property = False
    """Whether what a client deploys is `adapt(server, f, key)`: the global model is meant to be adapted, not used."""
    refine: Callable[..., Tree] | None = None
    """`refine(model, f, key) -> model`: the last steps that a client takes on its own rows before it deploys."""
    walks: bool | property = True
    """Whether a client's steps move a copy of the model that it got; else it sends gradients at one point."""
    centre: Callable[..., Tree] | None = None
    """`centre(broadcast) -> tree like an upload's values`: the point that uploads are clipped around, if not zero."""
    equal_weights: bool | property = False
    """Whether all clients weigh the same although their weights are not plain numbers."""
    tiny_weights: bool | property = False
    """Whether a client's weight may be many orders of magnitude below 1: sums under masks then carry more digits."""
    own_share: Callable[..., jax.Array] | None = None
    """`own_share(state) -> number in [0, 1]`: the share of the client's own model in what it deploys."""

    @abstractmethod
    def check(self) -> None:
        """Refuse hyper-parameters that make no sense, with a sentence that names them."""

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
        """A participant's work in a round."""

    @abstractmethod
    def update(self, server: Server, total: Total, /) -> Server:
        """The server's step, from the sum of the uploads."""

    @abstractmethod
    def personal(self, server: Server, state: State, /) -> Tree:
        """The model that a client deploys."""

    def adapt(self, server: Server, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The model of a client that joins after training, from its own training rows; the server's state stays.

        `work` is the local work that it does, by default one round of the method's own. Unless a method has a rule of
        its own, the newcomer fine-tunes the global model.
        """
        return newcomer.tuned(self, server.params, f, key, work)


REGISTRY: dict[str, type[Algorithm]] = {}


@dataclass_transform(frozen_default=True)
def algorithm(name: str) -> Callable[[type[T]], type[T]]:
    """Register a class as the algorithm `name`: a frozen dataclass, a pytree, and an entry of the registry.

    Fields annotated `float` or `Schedule` are leaves of the pytree; all others are static.
    """

    def register(cls: type[T]) -> type[T]:
        cls = dataclass(frozen=True)(cls)
        traced = [field.name for field in dataclasses.fields(cls) if is_traced(field)]  # pyright: ignore
        static = [field.name for field in dataclasses.fields(cls) if not is_traced(field)]  # pyright: ignore
        jax.tree_util.register_dataclass(cls, data_fields=traced, meta_fields=static)
        cls.name = name  # pyright: ignore[reportAttributeAccessIssue]
        REGISTRY[name] = cls  # pyright: ignore[reportArgumentType]
        return cls

    return register


def is_traced(field: dataclasses.Field[Any]) -> bool:
    """Whether a hyper-parameter is a number that a compiled program takes as an input."""
    written = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    return written.split(" ")[0] in ("float", "Schedule", "Compressor")


def get_algorithm(name: str) -> type[Algorithm]:
    if name not in REGISTRY:
        raise PolyfedError(f"unknown algorithm '{name}'{suggestion(name, REGISTRY)}")
    return REGISTRY[name]
