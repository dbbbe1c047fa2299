"""Rand-k: coordinates that are drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from polyfed.compress import numbers
from polyfed.compress.contract import Code, Compressor
from polyfed.compress.numbers import Real, Whole
from polyfed.core import randomness
from polyfed.core.checks import flag
from polyfed.core.packing import pack, unpack


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class RandK(Compressor):
    """k coordinates, uniformly at random, times size/k; the others are zero. omega = size/k - 1, with equality."""

    name: ClassVar[str] = "rand_k"

    k: Whole
    """the number of coordinates that travel; a plain number is part of a compiled program, an array its input"""
    seeded: bool = True
    """sender and receiver draw the coordinates from one seed, so that the indices need not travel"""

    def tree_flatten(self) -> tuple[tuple[Whole, ...], tuple[int | None, bool]]:
        return ((), (self.k, self.seeded)) if isinstance(self.k, int) else ((self.k,), (None, self.seeded))

    @classmethod
    def tree_unflatten(cls, static: tuple[int, bool], leaves: tuple[Whole, ...]) -> RandK:
        k, seeded = static
        return cls(leaves[0] if leaves else k, seeded)

    def omega(self, size: int) -> Real:
        return size / numbers.real(self.k) - 1.0

    def bits(self, size: int, real: int) -> Whole:
        return numbers.wide(self.k) * (real if self.seeded else real + numbers.index_bits(size))

    def check(self, size: int) -> None:
        numbers.check_size(self.name, size)
        numbers.check_whole(self.name, "k", self.k, 1, size)
        flag(f"{self.name}: seeded", self.seeded)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        # The k coordinates that a random permutation sends to 0..k-1: a uniform subset. Where k is known when the
        # program is compiled, the inverse permutation tells them without a look at the others.
        if isinstance(self.k, int):
            places = randomness.shuffled(key, x.size, jnp.arange(self.k), inverse=True)
            chosen = jnp.zeros(x.size, bool).at[places].set(True, unique_indices=True)
        else:
            chosen = randomness.shuffled(key, x.size, jnp.arange(x.size)) < self.k
        return x * (chosen.astype(x.dtype) * (x.size / jnp.asarray(self.k).astype(x.dtype)))

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        places = self._places(key, x.size)
        scaled = x[places] * (x.size / jnp.asarray(self.k).astype(x.dtype))
        indices = {} if self.seeded else {"indices": pack(places, numbers.index_bits(x.size))}
        return {"values": np.asarray(scaled), **indices}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        k = int(np.asarray(self.k))
        places = self._places(key, size) if self.seeded else unpack(code["indices"], k, numbers.index_bits(size))
        return jnp.zeros(size, dtype).at[places].set(code["values"])

    def _places(self, key: jax.Array, size: int) -> jax.Array:
        """The coordinates that travel."""
        return randomness.shuffled(key, size, jnp.arange(int(np.asarray(self.k))), inverse=True)
