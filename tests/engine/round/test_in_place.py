"""The weights of local steps are updated where they lie."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.contract import get_algorithm
from polyfed.core import trees
from polyfed.engine.recent import Recent
from polyfed.engine.simulation import Simulation
from tests.conftest import few


@pytest.mark.parametrize("name", few(["fedavg", "apfl", "scaffold", "fedbc"], "fedavg", "apfl"))
def test_a_local_step_copies_no_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hidden layers: the second's weights are read backward, while their own gradient is at hand."""
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(12, 7)).astype(np.float32), rng.integers(0, 3, 12)) for _ in range(4)]
    federation = pf.Federation.from_arrays(rows, classes=3, validation=0, test=0)
    problem = pf.Problem(federation, pf.models.mlp([23, 29]))
    method = get_algorithm(name)(lr=0.1, local_steps=3, batch=4)  # pyright: ignore[reportCallIssue]
    monkeypatch.setattr("polyfed.engine.programs.COMPILED", kept := Recent(9))
    simulation = Simulation(problem, method, participation=1.0, devices=1)
    simulation.advance(1)
    texts = [program.as_text() for program in kept]
    steps = [part for text in texts for part in re.split(r"\n(?=%|ENTRY )", text) if " dot(" in part and "body" in part]
    assert steps
    copies = re.compile(r"= f32\[\d+,(7,23|23,29)\]\S* copy\(%get-tuple-element")
    assert not [line for part in steps for line in part.splitlines() if copies.search(line)]


def test_what_is_tied_is_the_same_number_for_number() -> None:
    tree = {"a": np.array([1.5, -2.0], np.float32), "b": np.array([[0.1]], np.float32)}
    jax.tree.map(np.testing.assert_array_equal, jax.jit(trees.tied)(tree, np.float32(3.0)), tree)
    slopes = jax.grad(lambda t: sum(leaf.sum() for leaf in jax.tree.leaves(trees.tied(t))))(tree)
    jax.tree.map(np.testing.assert_array_equal, slopes, jax.tree.map(np.ones_like, tree))
