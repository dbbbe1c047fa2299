"""Real numbers as whole ones."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.fixed_point import FixedPoint

FIXED = FixedPoint(1e6, 4)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_more_words_carry_more_digits(words) -> None:
    rng, fixed = np.random.default_rng(1), FixedPoint(1e6, 3, words)
    vectors = rng.normal(size=(3, 50)) * 10.0 ** rng.integers(-40, 5, (3, 50))
    total = np.sum([fixed.encoded(vector) for vector in vectors], axis=0)
    assert total.shape == (50 * words,)
    expected = np.sum(vectors, axis=0)
    off = np.abs(fixed.decoded(total) - expected)
    assert np.all(off <= fixed.error + 4e-16 * np.max(np.abs(vectors), axis=0))
    assert fixed.error < (1e-11, 1e-29, 1e-47)[words - 1]
    assert np.all(np.abs(fixed.encoded(np.full(1, -1e6)).astype(np.int64)) < 2**62)


def test_what_does_not_fit_the_fixed_point_is_refused() -> None:
    with pytest.raises(Refused, match="not finite"):
        FIXED.encoded(np.array([0.0, np.nan]))
    with pytest.raises(Refused, match=r"2e\+06, beyond federation.bound = 1e\+06"):
        FIXED.encoded(np.array([0.0, -2e6]))
    with pytest.raises(Refused, match="beyond what its uploads can add up to"):
        FIXED.decoded(np.array([2**62 + 2**61], "<u8"))


@pytest.mark.parametrize("bound", [1.0, 3.0, 1000.0, 1e6])
@pytest.mark.parametrize("parties", [2, 3, 5, 17])
def test_what_was_added_in_the_highest_bits_is_seen_whatever_the_bound(bound, parties) -> None:
    """A site that adds 2^61, or takes it off, while all numbers are as large as they usually are."""
    fixed = FixedPoint(bound, parties)
    honest = np.sum([fixed.encoded(np.array([0.5 * bound, -0.1 * bound])) for _ in range(parties)], axis=0)
    np.testing.assert_allclose(fixed.decoded(honest), parties * bound * np.array([0.5, -0.1]), rtol=1e-9)
    for moved in (np.uint64(2**61), np.uint64(2**64 - 2**61)):
        with pytest.raises(Refused, match="beyond what its uploads can add up to"):
            fixed.decoded(honest + np.array([0, moved], "<u8"))
