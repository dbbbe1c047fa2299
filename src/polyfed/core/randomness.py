"""Randomness as a function of (seed, round, client, purpose) and of nothing else.

A key never depends on how the clients are chunked, on how many devices there are, or on which clients ran before. A
client is identified by its name, so that reordering a federation changes nothing for anybody.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Purpose(IntEnum):
    """What a random number is for. The numbers are part of the contract: changing one changes every run."""

    INIT = 0
    PARTICIPATION = 1
    LOCAL = 2
    PREPARE = 3
    FINETUNE = 4
    SERVER = 5
    EVALUATE = 6
    NOISE = 7
    ATTACK = 8


def client_ids(names: Sequence[str]) -> np.ndarray:
    """Two 32-bit words per client, from its name alone."""
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<u4").reshape(len(names), 2)


def purpose_key(seed: jax.Array | int, purpose: Purpose, round: jax.Array | int = 0) -> jax.Array:
    """The key that all parties of a round share, for draws of the server such as who takes part."""
    words = jnp.stack([jnp.asarray(seed, jnp.uint32), jnp.uint32(purpose)])
    return jax.random.fold_in(_key(words), round)


def secret_key(words: jax.Array | np.ndarray) -> jax.Array:
    """A key of two words that nobody else knows."""
    return _key(jnp.asarray(words))


def client_key(shared: jax.Array, client: jax.Array) -> jax.Array:
    """The key of one client: the round's key, xor the client's two words (a counter-based generator takes any key)."""
    return _key(jax.random.key_data(shared) ^ client)


def _key(words: jax.Array) -> jax.Array:
    return cast(jax.Array, jax.random.wrap_key_data(words, impl="threefry2x32"))


SHUFFLE_ROUNDS = 32
UNROLL = 8


def shuffled(
    key: jax.Array, size: jax.Array | int, positions: jax.Array, inverse: bool = False, unroll: int = UNROLL
) -> jax.Array:
    """What stands at `positions` of a random permutation of 0..size-1, or of its inverse, without building it.

    The swap-or-not shuffle (Hoang, Morris, Rogaway 2012): each pass pairs x with (k - x) mod size and swaps the pair if
    a hash of it says so. Every pass is an involution, hence the whole an exact permutation for any `size`, traced or
    not, at a cost that depends on the number of positions alone: a batch needs no sorted array of the client's rows,
    and a cohort of K among N clients needs K evaluations. `unroll` is how many passes are compiled as one: several are
    quicker for few positions, one for thousands. An accelerator takes all of them in one kernel.
    """
    with jax.numpy_dtype_promotion("standard"):
        size = jnp.asarray(size, jnp.uint32)
        x = positions.astype(jnp.uint32)
        words = _words(jax.random.key_data(key))
        words = words[::-1] if inverse else words

        def swap(x: jax.Array, word: jax.Array) -> tuple[jax.Array, None]:
            shift = word[0] % size
            partner = jnp.where(shift >= x, shift - x, shift + size - x)
            coin = _mix(jnp.maximum(x, partner) ^ word[1]) >> 31
            return jnp.where(coin == 1, partner, x), None

        def passes(x: jax.Array, words: jax.Array, together: int) -> jax.Array:
            return lax.scan(swap, x, words, unroll=together)[0]

        ways = partial(passes, together=unroll), partial(passes, together=SHUFFLE_ROUNDS)
        places = lax.platform_dependent(x, words, cpu=ways[0], default=ways[1])
        return places.astype(jnp.int32)


def coins(key: jax.Array, shape: tuple[int, ...], probability: float) -> jax.Array:
    """Independent coins, True with this probability. A coin is two hashes, as dropout needs many of them."""
    words = jax.random.key_data(key)
    with jax.numpy_dtype_promotion("standard"):
        count = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
        drawn = _mix(_mix(count * jnp.uint32(0x9E3779B9) + words[0]) ^ words[1])
        return drawn < jnp.uint32(min(round(probability * 2**32), 2**32 - 1))


def _words(key: jax.Array) -> jax.Array:
    """Two words for each pass of a shuffle, hashed from the key and the pass, which is cheaper than a generator."""
    count = jnp.arange(SHUFFLE_ROUNDS, dtype=jnp.uint32)
    both = _mix(_mix(count * jnp.uint32(0x9E3779B9) + key[0]) ^ key[1])
    return jnp.stack([_mix(both + jnp.uint32(0x6A09E667)), _mix(both ^ jnp.uint32(0xBB67AE85))], axis=1)


def _mix(x: jax.Array) -> jax.Array:
    """A 32-bit avalanche: every output bit depends on every input bit (multiply-xorshift with Weyl-type constants)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x9E3779B1)
    x = (x ^ (x >> 15)) * jnp.uint32(0x85EBCA77)
    return x ^ (x >> 16)
