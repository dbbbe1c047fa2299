"""Random dithering: levels between zero and the vector's norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from polyfed.compress import numbers
from polyfed.compress.contract import Code, Compressor
from polyfed.compress.numbers import Real, Whole
from polyfed.core.packing import pack, unpack


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dithering(Compressor):
    """Random dithering with s levels: |x| sign(x_j) l_j / s, where l_j rounds s |x_j| / |x| to a neighbour, unbiased.

    omega = min(size / s^2, sqrt(size) / s). Alistarh et al. 2017 (QSGD), Lemma 3.1. Each message is the norm and, per
    coordinate, a sign and a level of fixed length.
    """

    name: ClassVar[str] = "dithering"

    levels: Whole
    """the number s of levels above zero"""

    def omega(self, size: int) -> Real:
        if isinstance(self.levels, int):
            return min(size / self.levels**2, size**0.5 / self.levels)
        ratio = size**0.5 / numbers.real(self.levels)
        return jnp.minimum(ratio**2, ratio) if isinstance(ratio, jax.Array) else np.minimum(ratio**2, ratio)

    def bits(self, size: int, real: int) -> Whole:
        levels = numbers.wide(self.levels)
        if isinstance(levels, int):
            return real + size * (1 + levels.bit_length())  # bit_length(s) = ceil(log2(s + 1))
        if isinstance(levels, jax.Array):
            return real + size * (1 + 32 - lax.clz(levels))
        return real + size * (1 + np.ceil(np.log2(levels + 1)).astype(np.int64))

    def check(self, size: int) -> None:
        numbers.check_size(self.name, size)
        numbers.check_whole(
            self.name, "levels", self.levels, 1, 2**20
        )  # beyond, single precision cannot tell a level from its neighbour

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        level, unit = self._levels(key, x)
        return jnp.sign(x) * level * unit

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        level, unit = self._levels(key, x)
        wholes = level.astype(jnp.uint32) * 2 + (x < 0)
        return {"unit": np.asarray(unit).reshape(1), "levels": pack(wholes, 1 + int(self.levels).bit_length())}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        wholes = unpack(code["levels"], size, 1 + int(self.levels).bit_length())
        sign = jnp.where(jnp.asarray(wholes & 1, bool), -1, 1).astype(dtype)
        return sign * (wholes >> 1).astype(dtype) * jnp.asarray(code["unit"][0], dtype)

    def _levels(self, key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Each coordinate's level, and what one level stands for."""
        levels = jnp.asarray(self.levels).astype(x.dtype)
        largest = jnp.max(jnp.abs(x))
        safe = jnp.where(largest == 0, jnp.ones((), x.dtype), largest)
        relative = x / safe  # its norm neither overflows nor vanishes, whatever the scale of x
        norm = jnp.sqrt(jnp.sum(relative * relative))
        position = jnp.abs(relative) / jnp.where(norm == 0, jnp.ones((), x.dtype), norm) * levels
        below = jnp.floor(position)
        up = jax.random.uniform(key, x.shape, x.dtype) < position - below
        return jnp.minimum(below + up.astype(x.dtype), levels), norm / levels * largest
