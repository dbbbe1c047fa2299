"""Natural compression: powers of two."""

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
from polyfed.core.errors import PolyfedError
from polyfed.core.packing import float_format, pack, unpack


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Natural(Compressor):
    """Each number becomes one of the two neighbouring powers of two, at random and unbiased: omega = 1/8.

    Horvath et al. 2022 (natural compression). The sign and the exponent travel. A number in [2^a, 2^(a+1)) goes up with
    the probability that its mantissa spells, so the draw is exact. Zeros and powers of two stay. A magnitude whose
    upper neighbour is not a finite number goes down; one below the smallest normal number is unbiased, but omega is not
    meant for it.
    """

    name: ClassVar[str] = "natural"

    def omega(self, size: int) -> float:
        return 0.125

    def bits(self, size: int, real: int) -> int:
        if real not in (32, 64):
            raise PolyfedError(f"natural: numbers must have 32 or 64 bits, found {real}")
        return size * (9 if real == 32 else 12)

    def check(self, size: int) -> None:
        numbers.check_size(self.name, size)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        if x.dtype not in (jnp.float32, jnp.float64):
            raise PolyfedError(f"natural: numbers must be float32 or float64, found {x.dtype}")
        word, total, kept = (jnp.uint64, 64, 52) if x.dtype == jnp.float64 else (jnp.uint32, 32, 23)
        raw = lax.bitcast_convert_type(x, word)  # sign, exponent, mantissa
        unit = 1 << kept  # the exponent's last bit
        mantissa = raw & jnp.asarray(unit - 1, word)
        exponent = (raw >> kept) & jnp.asarray((1 << (total - 1 - kept)) - 1, word)
        largest = (1 << (total - 1 - kept)) - 2
        draw = jax.random.bits(key, x.shape, word) >> (total - kept)
        up = (draw < mantissa) & (exponent < largest)
        power = (raw - mantissa) + jnp.where(up, jnp.asarray(unit, word), jnp.zeros((), word))
        return jnp.where(jnp.isfinite(x), lax.bitcast_convert_type(power, x.dtype), x)

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        word, head, mantissa = float_format(x.dtype)
        return {"powers": pack(np.asarray(self(key, x)).view(word) >> mantissa, head)}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        word, head, mantissa = float_format(dtype)
        return jnp.asarray((unpack(code["powers"], size, head).astype(word) << mantissa).view(dtype))
