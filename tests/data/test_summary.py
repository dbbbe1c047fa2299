"""The summary's figures, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed.data as data
from polyfed.data import Federation


def test_label_skew_and_feature_shift_by_hand():
    # Labels: client a has (3/4, 1/4), b has (0, 1); overall (3/8, 5/8): both are 3/8 away.
    # Feature 0: means 0 and 2, overall 1, variance 1, shift 1 each. Feature 1: means 0, variance 4. Feature 2 constant.
    wave = np.array([-2.0, 2.0, -2.0, 2.0])
    a = np.column_stack([np.zeros(4), wave, np.full(4, 7.0)])
    b = np.column_stack([np.full(4, 2.0), wave, np.full(4, 7.0)])
    federation = Federation.from_arrays(
        {"a": (a, [0, 0, 0, 1]), "b": (b, [1, 1, 1, 1])}, validation=0, test=0, columns={"site": ["x", "y"]}
    )
    summary = federation.summary()
    assert summary.label_skew == pytest.approx(3 / 8)
    assert summary.classes_per_client == 1.5
    assert summary.feature_shift == pytest.approx(np.sqrt((1 + 0) / 2))
    first = {"client": "a", "train": 4, "validation": 0, "test": 0, "classes": 2, "label_skew": 3 / 8, "site": "x"}
    assert first.items() <= summary.to_dicts()[0].items()
    assert (summary.smallest, summary.median, summary.largest) == (4, 4, 4)


def test_the_printed_summary_says_what_matters_and_stays_short():
    text = str(data.load("synthetic", clients=50, sizes=100).summary())
    assert "50 clients, 5,000 rows (3,500 train, 500 validation, 1,000 test)" in text
    assert "rows per client: 100 to 100, median 100" in text
    assert "10 classes" in text
    assert "label skew: 0." in text
    assert "client-019" in text
    assert "client-020" not in text
    assert text.endswith("... and 30 more clients")
    assert "label skew" not in str(data.load("sines", groups=[1, 1]).summary())


def test_token_ids_have_no_feature_shift_and_images_do():
    tokens = Federation.from_arrays([(np.arange(20).reshape(10, 2), [0, 1] * 5)])
    images = Federation.from_arrays([(np.arange(40, dtype=np.uint8).reshape(10, 2, 2), [0, 1] * 5)] * 2)
    assert tokens.summary().feature_shift is None
    shift = images.summary().feature_shift
    assert shift is not None
    assert shift > 0
