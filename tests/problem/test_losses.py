"""Metrics of losses: accuracy goes by the first of the largest outputs."""

from __future__ import annotations

import jax
import numpy as np

from polyfed.problem.losses import get_loss


def test_a_hit_is_the_first_of_the_largest_outputs_as_numpy_finds_it() -> None:
    rng = np.random.default_rng(0)
    logits = rng.integers(-2, 3, (400, 5)).astype(np.float32)  # many ties
    logits[::7, 2] = np.nan
    logits[::21, 4] = np.nan
    logits[5::9, 1] = np.inf
    labels = rng.integers(0, 5, 400)
    hits = jax.jit(get_loss("softmax").metric)(logits, labels)
    np.testing.assert_array_equal(hits, np.argmax(logits, axis=1) == labels)
    assert 0 < hits.mean() < 1
