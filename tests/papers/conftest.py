"""Fixtures of the papers' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polyfed.papers.shared.experiment import EXPERIMENTS, Experiment


@pytest.fixture
def no_experiments() -> Iterator[dict[str, Experiment]]:
    """An empty catalogue; the papers' experiments come back afterwards."""
    known = dict(EXPERIMENTS)
    EXPERIMENTS.clear()
    yield EXPERIMENTS
    EXPERIMENTS.clear()
    EXPERIMENTS.update(known)
