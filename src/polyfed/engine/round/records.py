"""What a round reads, carries from one to the next, and adds up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyfed.algorithms.contract import Server, State, Upload
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.engine.devices.layout import AXIS
from polyfed.problem.objective import Examples

if TYPE_CHECKING:
    from polyfed.data import Federation
    from polyfed.data.population import Population


Zeros = Callable[..., Any]
"""`jnp.zeros` or `np.zeros`."""


class Longest(NamedTuple):
    """The most rows that any client has, by split: the bounds of passes over a client's rows."""

    train: int
    validation: int
    test: int

    @classmethod
    def of(cls, federations: Iterable[Federation | Population]) -> Longest:
        each = [[max(1, int(np.max(f.split(name).sizes))) for name in cls._fields] for f in federations]
        return cls(*np.max(each, axis=0).tolist())


class Shard(NamedTuple):
    """Examples of one split and which rows are whose: `starts` and `sizes` have one entry per client."""

    examples: Examples
    starts: jax.Array
    sizes: jax.Array


class Data(NamedTuple):
    """What the compiled programs read: everybody's, the same on every device but for `blocks`; or some clients'."""

    train: Shard
    client_ids: jax.Array
    seed: jax.Array
    blocks: Examples | None = None
    """The training rows again, as (clients, rows, ...), padded, each client's on the device that owns it; or None."""
    validation: Shard | None = None
    numbers: jax.Array | None = None
    """Where these are the rows of some clients, another few on every device: their places in the federation. Elsewhere
    a client then goes by its place in this list."""
    secret: jax.Array | np.ndarray | None = None
    """Words for the noise of the next rounds, where nobody is to draw it again."""

    def number(self, client: jax.Array) -> jax.Array:
        """A client's place in the federation."""
        return client if self.numbers is None else self.numbers[client]


class Wide(NamedTuple):
    """A sum of bits that may exceed 32 bits: high * 2^16 + low."""

    high: jax.Array
    low: jax.Array

    @classmethod
    def zero(cls, zeros: Zeros = jnp.zeros) -> Wide:
        return cls(zeros((), jnp.uint32), zeros((), jnp.uint32))

    def plus(self, numbers: jax.Array) -> Wide:
        """Add an array of whole numbers below 2^32."""
        numbers = numbers.astype(jnp.uint32)
        low = self.low + jnp.sum(numbers & 0xFFFF, dtype=jnp.uint32)
        return Wide(self.high + jnp.sum(numbers >> 16, dtype=jnp.uint32) + (low >> 16), low & 0xFFFF)

    def __int__(self) -> int:
        return (int(self.high) << 16) + int(self.low)


class Tally(NamedTuple):
    """What happened in a stretch of rounds: on one device, until `everywhere` adds the devices up."""

    participants: jax.Array
    """uploads that travelled"""
    catching_up: jax.Array
    """participants that had not taken part in the round before"""
    iterations: jax.Array
    """local iterations: of each round, those of the client that did most"""
    bits: Wide
    """bits of compressed uploads; others are counted from their shapes"""
    empty: jax.Array
    """rounds in which clients took part, but no upload was finite"""
    shares: jax.Array
    """per client: its share of the server's average, summed over the rounds"""

    @classmethod
    def zero(cls, population: int, zeros: Zeros = jnp.zeros) -> Tally:
        """No rounds yet; `zeros` makes the arrays, on a device or on the host."""
        zero = zeros((), jnp.int32)
        return cls(zero, zero, zero, Wide.zero(zeros), zero, zeros(population, jnp.result_type(float)))

    def everywhere(self) -> Tally:
        """The devices' tallies as one. `iterations` and `empty` are the same on all of them."""
        summed = (self.participants, self.catching_up, self.bits, self.shares)
        participants, catching_up, bits, shares = lax.psum(summed, AXIS)
        return Tally(participants, catching_up, self.iterations, bits, self.empty, shares)


class Carry(NamedTuple):
    """All that a round reads and writes. During a stretch of rounds each device counts for itself."""

    server: Server
    clients: State
    excluded: jax.Array
    """per client: how often its update was not finite"""
    tally: Tally
    norms: jax.Array | None = None
    """the median norms of the uploads of past rounds, where the next round is bounded by them"""


class Sums(NamedTuple):
    """What one device has added up of a round's uploads."""

    values: Tree
    weight: jax.Array
    uploads: jax.Array
    """how many: those that were finite"""
    steps: jax.Array
    """the most local iterations of any client"""
    emphasis: jax.Array
    """the sum of what they count in the server's step"""


class Slots(NamedTuple):
    """What a device's clients did in a round, one by one."""

    good: jax.Array
    """whose update was finite"""
    silent: jax.Array
    bits: jax.Array
    emphasis: jax.Array


class Contribution(NamedTuple):
    """A client's upload as the sum takes it."""

    values: Tree
    weight: jax.Array
    steps: jax.Array
    bits: jax.Array
    silent: jax.Array
    emphasis: jax.Array


def contribution(upload: Upload, as_such: bool = False) -> Contribution:
    """An upload, multiplied by its weight, or as such."""
    weight, real = upload.weight, jnp.result_type(float)
    plain = as_such or (isinstance(weight, int | float) and weight == 1)
    emphasis = jnp.asarray(weight if upload.emphasis is None else upload.emphasis, real)
    return Contribution(
        upload.values if plain else trees.scale(weight, upload.values),
        jnp.asarray(weight, real),
        jnp.asarray(upload.steps, jnp.int32),
        jnp.where(upload.silent, 0, jnp.asarray(0 if upload.bits is None else upload.bits)).astype(jnp.uint32),
        jnp.asarray(upload.silent, bool),
        jnp.where(upload.silent, 0, emphasis),
    )


def as_vector(sent: Contribution) -> np.ndarray:
    """All that the sum takes of an upload, as one vector of real numbers: the values, and the weight."""
    return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in (*jax.tree.leaves(sent.values), sent.weight)])


def from_vector(vector: np.ndarray, uploads: int, like: Sums) -> Sums:
    """The sum of so many such vectors, in the shapes and types of `like`."""
    leaves, structure = jax.tree.flatten((like.values, like.weight))
    parts = np.split(vector, np.cumsum([np.size(leaf) for leaf in leaves])[:-1])
    arrays = [part.reshape(np.shape(leaf)).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    values, weight = jax.tree.unflatten(structure, arrays)
    count: Any = np.asarray(uploads, like.uploads.dtype)
    return like._replace(values=values, weight=weight, uploads=count)


def wire_bits(upload: Upload) -> int:
    """The bits of an upload that follow from its shapes; none where it says itself what it takes."""
    if upload.bits is not None:
        return 0
    return trees.bits(upload.values) + (0 if isinstance(upload.weight, int | float) else trees.bits(upload.weight))
