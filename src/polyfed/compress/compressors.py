"""Compressors: what a client sends in place of a vector, how far off that may be, and the bits that it takes.

A compressor is a frozen dataclass and a pytree: its numbers are leaves, so they may be traced and differ from client to
client (an array with one entry per client, and `jax.vmap`). Called with a key and a flat vector it returns the vector
that the receiver reconstructs. A number that is not finite stays visible: it is never dropped from the message.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from polyfed.core import randomness
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.packing import float_words, pack, unpack

Whole = int | jax.Array | np.ndarray
"""A whole number; or an array of them, one per client."""
Real = float | jax.Array | np.ndarray


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
    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
        """What `__call__` gives for the vector that was encoded."""


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
        _size(self, size)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        return x

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        return {"values": np.asarray(x)}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
        return jnp.asarray(code["values"], dtype)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class RandK(Compressor):
    """k coordinates, uniformly at random, times size/k; the others are zero. omega = size/k - 1, with equality."""

    name: ClassVar[str] = "rand_k"

    k: Whole
    """the number of coordinates that travel; a plain number is part of a compiled program, an array its input"""
    seeded: bool = True
    """sender and receiver draw the coordinates from one seed, so that the indices need not travel"""

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return ((), (self.k, self.seeded)) if isinstance(self.k, int) else ((self.k,), (None, self.seeded))

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], leaves: tuple[Any, ...]) -> RandK:
        k, seeded = static
        return cls(leaves[0] if leaves else k, seeded)

    def omega(self, size: int) -> Real:
        return size / _real(self.k) - 1.0

    def bits(self, size: int, real: int) -> Whole:
        return _wide(self.k) * (real if self.seeded else real + _index_bits(size))

    def check(self, size: int) -> None:
        _size(self, size)
        _between(self, "k", 1, size)
        if not isinstance(self.seeded, bool):
            raise PolyfedError(f"{self.name}: seeded must be true or false, found {self.seeded!r}")

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
        indices = {} if self.seeded else {"indices": pack(places, _index_bits(x.size))}
        return {"values": np.asarray(scaled), **indices}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
        k = int(np.asarray(self.k))
        places = self._places(key, size) if self.seeded else unpack(code["indices"], k, _index_bits(size))
        return jnp.zeros(size, dtype).at[places].set(code["values"])

    def _places(self, key: jax.Array, size: int) -> jax.Array:
        """The coordinates that travel."""
        return randomness.shuffled(key, size, jnp.arange(int(np.asarray(self.k))), inverse=True)


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
        return _wide(self.k) * (real + _index_bits(size))

    def check(self, size: int) -> None:
        _size(self, size)
        _between(self, "k", 1, size)

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        order = jnp.argsort(jnp.abs(x), stable=True, descending=True)
        chosen = jnp.zeros(x.size, bool).at[order].set(jnp.arange(x.size) < self.k)
        return x * chosen.astype(x.dtype)

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        places = jnp.argsort(jnp.abs(x), stable=True, descending=True)[: int(np.asarray(self.k))]
        return {"values": np.asarray(x[places]), "indices": pack(places, _index_bits(x.size))}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
        places = unpack(code["indices"], int(np.asarray(self.k)), _index_bits(size))
        return jnp.zeros(size, dtype).at[places].set(code["values"])


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
        ratio = size**0.5 / _real(self.levels)
        return jnp.minimum(ratio**2, ratio) if isinstance(ratio, jax.Array) else np.minimum(ratio**2, ratio)

    def bits(self, size: int, real: int) -> Whole:
        levels = _wide(self.levels)
        if isinstance(levels, int):
            return real + size * (1 + levels.bit_length())  # bit_length(s) = ceil(log2(s + 1))
        if isinstance(levels, jax.Array):
            return real + size * (1 + 32 - lax.clz(levels))
        return real + size * (1 + np.ceil(np.log2(levels + 1)).astype(np.int64))

    def check(self, size: int) -> None:
        _size(self, size)
        _between(self, "levels", 1, 2**20)  # beyond, single precision cannot tell a level from its neighbour

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        self.check(x.size)
        level, unit = self._levels(key, x)
        return jnp.sign(x) * level * unit

    def encode(self, key: jax.Array, x: jax.Array) -> Code:
        level, unit = self._levels(key, x)
        wholes = level.astype(jnp.uint32) * 2 + (x < 0)
        return {"unit": np.asarray(unit).reshape(1), "levels": pack(wholes, 1 + int(self.levels).bit_length())}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
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
        _size(self, size)

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
        word, width, kept = float_words(x.dtype)
        return {"powers": pack(np.asarray(self(key, x)).view(word) >> kept, width)}

    def decode(self, key: jax.Array, code: Code, size: int, dtype: Any) -> jax.Array:
        word, width, kept = float_words(dtype)
        return jnp.asarray((unpack(code["powers"], size, width).astype(word) << kept).view(dtype))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sealed:
    """How a compressed part of an upload came about: factor * C(x), or factor * x where it travels `whole`."""

    compressor: Compressor
    key: jax.Array
    vector: jax.Array
    factor: jax.Array | float = 1.0
    whole: jax.Array | bool = False


COMPRESSORS: dict[str, type[Compressor]] = {kind.name: kind for kind in (Identity, RandK, TopK, Dithering, Natural)}
"""Compressors by the name that a config gives them."""


def make(spec: str | Mapping[str, Any] | Compressor) -> Compressor:
    """A compressor from a config: "natural", {"name": "rand_k", "k": 10}, or one that is made already.

    A list of whole numbers is one number per client.
    """
    if isinstance(spec, Compressor):
        return spec
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise PolyfedError(f"compressor must be a name or a table with the key 'name', found {spec!r}")
    options = dict(spec)
    name = options.pop("name", None)
    if name is None:
        raise PolyfedError(f"compressor: the key 'name' is missing; known: {', '.join(sorted(COMPRESSORS))}")
    if not isinstance(name, str) or name not in COMPRESSORS:
        raise PolyfedError(f"compressor.name: unknown compressor {name!r}{suggestion(str(name), COMPRESSORS)}")
    kind = COMPRESSORS[name]
    fields = {field.name: field for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    for key in options:
        if key not in fields:
            hint = suggestion(key, fields) if fields else f"; {name} takes none"
            raise PolyfedError(f"compressor.{key}: {name} has no such key{hint}")
    for key, field in fields.items():
        if key not in options and field.default is dataclasses.MISSING:
            raise PolyfedError(f"compressor.{key}: {name} needs it")
    for key, value in options.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            options[key] = _array(f"compressor.{key}", value)
    made = kind(**options)
    for key in options:
        if key == "seeded" and not isinstance(options[key], bool):
            raise PolyfedError(f"compressor.seeded must be true or false, found {options[key]!r}")
        if key != "seeded":
            _between(made, key, 1, None)
    return made


def _array(key: str, values: Sequence[Any]) -> np.ndarray:
    if not values or any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise PolyfedError(f"{key} must be a whole number, or a list of them with one per client, found {values!r}")
    return np.asarray(values, np.int32)


def _size(owner: Compressor, size: int) -> None:
    if size < 1:
        raise PolyfedError(f"{owner.name}: there is nothing to compress in a vector of {size} numbers")


def _between(owner: Compressor, name: str, low: int, high: int | None) -> None:
    """The field must be a whole number, or an array of them, from low to high."""
    value = getattr(owner, name)
    if isinstance(value, Tracer):
        return
    wanted = f"at least {low}" if high is None else f"from {low} to {high}"
    array = isinstance(value, np.ndarray | np.integer | jax.Array)
    whole = np.issubdtype(value.dtype, np.integer) if array else isinstance(value, int) and not isinstance(value, bool)
    found = np.asarray(value) if whole else None
    if found is None or np.any(found < low) or (high is not None and np.any(found > high)):
        raise PolyfedError(f"{owner.name}: {name} must be a whole number {wanted}, found {value!r}")


def _index_bits(size: int) -> int:
    """ceil(log2(size)): what it takes to name one of `size` coordinates."""
    return (size - 1).bit_length()


def _wide(value: Whole) -> Whole:
    """The number in a type in which a product with it counts bits: up to 2^32 where it is traced."""
    if isinstance(value, int):
        return value
    return value.astype(jnp.uint32) if isinstance(value, jax.Array) else np.asarray(value, np.int64)


def _real(value: Whole) -> Real:
    """The number as a real one, in the precision of the run where it is traced."""
    return value.astype(jnp.result_type(float)) if isinstance(value, jax.Array) else value
