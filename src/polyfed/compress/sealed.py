"""A compressed part of an upload, with what it was made from."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from polyfed.compress.contract import Compressor


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sealed:
    """How a compressed part of an upload came about: factor * C(x), or factor * x where it travels `whole`."""

    compressor: Compressor
    key: jax.Array
    vector: jax.Array
    factor: jax.Array | float = 1.0
    whole: jax.Array | bool = False
