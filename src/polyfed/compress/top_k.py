"""Top-k: the coordinates of largest magnitude."""

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
from polyfed.core.errors import PolyfedError
from polyfed.core.packing import pack, unpack


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TopK(Compressor):
    """The k coordinates of largest magnitude, as they are: |C(x) - x|^2 <= (1 - k/size) |x|^2, but E C(x) is not x."""

    name: ClassVar[str] = "top_k"
    biased: ClassVar[bool] = True

    k: Whole
    """the number of coordinates that travel, each with its index"""

    def omega(self, size: int) -> Real:
        raise PolyfedError("top_k is biased and has no omega: use it with error feedback, or choose rand_k")

    def bits(self, size: int, real: int) -> Whole:
        return numbers.wide(self.k) * (real + numbers.index_bits(size))

    def check(self, size: int) -> None:
        numbers.check_size(self.name, size)
        numbers.check_whole(self.name, "k", self.k, 1, size)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        order = jnp.argsort(jnp.abs(x), stable=True, descending=True)
        chosen = jnp.zeros(x.size, bool).at[order].set(jnp.arange(x.size) < self.k)
        return x * chosen.astype(x.dtype)

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        places = jnp.argsort(jnp.abs(x), stable=True, descending=True)[: int(np.asarray(self.k))]
        return {"values": np.asarray(x[places]), "indices": pack(places, numbers.index_bits(x.size))}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        places = unpack(code["indices"], int(np.asarray(self.k)), numbers.index_bits(size))
        return jnp.zeros(size, dtype).at[places].set(code["values"])
