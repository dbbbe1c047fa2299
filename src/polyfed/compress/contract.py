"""What a compressor is: what a client sends in place of a vector, how far off that may be, and the bits that it takes.

A compressor is a frozen dataclass and a pytree: its numbers are leaves, so they may be traced and differ from client to
client (an array with one entry per client, and `jax.vmap`). Called with a key and a flat vector it returns the vector
that the receiver reconstructs. A number that is not finite stays visible: it is never dropped from the message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import jax
import numpy as np
from jax.typing import DTypeLike

from polyfed.compress.numbers import Real, Whole

Code = dict[str, np.ndarray]
"""A message by its parts: numbers in the vector's own precision, and whole numbers packed into bytes."""


class Compressor(ABC):
    """A random map C of vectors. Unless `biased`: E C(x) = x and E|C(x) - x|^2 <= omega |x|^2."""

    name: ClassVar[str]
    biased: ClassVar[bool] = False

    @abstractmethod
    def omega(self, size: int) -> Real:
        """The variance factor omega for vectors of `size` numbers; a biased compressor has none."""

    @abstractmethod
    def bits(self, size: int, real: int) -> Whole:
        """The bits of a message that stands for `size` numbers of `real` bits each."""

    @abstractmethod
    def check(self, size: int) -> None:
        """Refuse parameters that make no sense for vectors of `size` numbers. Traced ones cannot be looked at."""

    @abstractmethod
    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """The decompressed message for the flat vector x, in x's own precision."""

    @abstractmethod
    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        """The message itself, in as many bits as `bits` says; the vector and the parameters must be known."""

    @abstractmethod
    def decode(self, key: jax.Array, code: Code, size: int, dtype: DTypeLike) -> jax.Array:
        """What `__call__` gives for the vector that was encoded."""
