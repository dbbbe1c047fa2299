"""No compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from polyfed.compress import numbers
from polyfed.compress.contract import Code, Compressor


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Identity(Compressor):
    """No compression: C(x) = x, omega = 0."""

    name: ClassVar[str] = "identity"

    def omega(self, size: int) -> float:
        return 0.0

    def bits(self, size: int, real: int) -> int:
        return size * real

    def check(self, size: int) -> None:
        numbers.check_size(self.name, size)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        return x

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        return {"values": np.asarray(x)}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        return jnp.asarray(code["values"], dtype)
