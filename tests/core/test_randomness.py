"""Randomness: exact permutations, and keys that depend on what they should."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyfed.core import randomness
from polyfed.core.randomness import Purpose, client_ids, client_key, purpose_key, shuffled

permute = jax.jit(lambda seed, size: shuffled(jax.random.key(seed), size, jnp.arange(512)))


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**31 - 1), size=st.integers(1, 512))
def test_a_shuffle_is_a_permutation_of_any_size(seed: int, size: int) -> None:
    found = np.asarray(permute(seed, size))[:size]
    np.testing.assert_array_equal(np.sort(found), np.arange(size))


def test_the_inverse_undoes_a_shuffle() -> None:
    key, count = jax.random.key(4), jnp.arange(113)
    there = shuffled(key, 113, count)
    np.testing.assert_array_equal(shuffled(key, 113, there, inverse=True), np.arange(113))


def _counting(first: bool) -> jax.Array:
    """Keys that differ in their lowest bits only."""
    count, zero = jnp.arange(6000, dtype=jnp.uint32), jnp.zeros(6000, jnp.uint32)
    return jax.random.wrap_key_data(jnp.stack([count, zero] if first else [zero, count], axis=1))


@pytest.mark.parametrize(
    "keys", [lambda: jax.random.split(jax.random.key(1), 6000), lambda: _counting(True), lambda: _counting(False)]
)
def test_every_row_is_equally_likely_at_every_position(keys: Callable[[], jax.Array]) -> None:
    """Chi-square over 6,000 shuffles of 7: 49 cells, 36 degrees of freedom; 80 is far beyond the 99.99% point."""
    found = np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, 7, jnp.arange(7))))(keys()))
    counts = np.stack([(found == value).sum(axis=0) for value in range(7)])
    expected = 6000 / 7
    assert ((counts - expected) ** 2 / expected).sum() < 80


def test_neighbours_are_no_more_likely_to_stay_neighbours() -> None:
    keys = jax.random.split(jax.random.key(2), 6000)
    found = np.asarray(jax.jit(jax.vmap(lambda key: shuffled(key, 10, jnp.arange(10))))(keys))
    adjacent = np.mean(np.abs(np.diff(found, axis=1)) == 1)
    assert adjacent == pytest.approx(0.2, abs=0.01)  # 2 * 9 ordered adjacent pairs of 90


def test_a_large_permutation_can_be_read_at_a_few_places() -> None:
    """The first 100 of a million: distinct, in range, and the same whether read together or one by one."""
    key = jax.random.key(3)
    together = np.asarray(shuffled(key, 1_000_000, jnp.arange(100)))
    assert len(set(together.tolist())) == 100
    assert 0 <= together.min() < together.max() < 1_000_000
    assert int(shuffled(key, 1_000_000, jnp.array([57]))[0]) == together[57]


def test_keys_differ_by_seed_round_purpose_and_client() -> None:
    ids = client_ids(["a", "b", "hospital 7"])
    keys = {
        tuple(np.asarray(jax.random.key_data(client_key(purpose_key(seed, purpose, round), jnp.asarray(client)))))
        for seed in (0, 1)
        for purpose in (Purpose.LOCAL, Purpose.PREPARE)
        for round in (0, 1, 2)
        for client in ids
    }
    assert len(keys) == 2 * 2 * 3 * 3


def test_a_client_is_known_by_its_name_alone() -> None:
    np.testing.assert_array_equal(client_ids(["a", "b", "c"])[1], client_ids(["b"])[0])
    assert client_ids(["a"]).dtype == np.uint32


def test_the_numbers_of_the_purposes_are_fixed() -> None:
    """They are part of every run: a change would silently change all results."""
    assert {p.name: int(p) for p in randomness.Purpose} == {
        "INIT": 0,
        "PARTICIPATION": 1,
        "LOCAL": 2,
        "PREPARE": 3,
        "FINETUNE": 4,
        "SERVER": 5,
        "EVALUATE": 6,
        "NOISE": 7,
        "ATTACK": 8,
    }
