"""Passes that are cut into batches of nearly equal size, against NumPy loops; and where the usual cut is the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.core import randomness
from polyfed.core.randomness import Purpose
from polyfed.deploy.protocol.terms import method_from_json, method_to_json
from polyfed.engine.identity import run_identity
from polyfed.problem.objective import Batching
from tests.algorithms.comparison import SEED, START, matrix, trained
from tests.algorithms.references import baselines
from tests.algorithms.references.shared import Even, clients_of
from tests.conftest import few

A = pf.algorithms
ROUNDS, STEPS = 2, 7


def bits(problem: pf.Problem, method: A.Algorithm) -> list[bytes]:
    simulation = trained(problem, method, ROUNDS)
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((simulation.server, simulation.client_state))]


def test_fedavg_takes_the_rows_of_equal_parts(problem) -> None:
    """Clients of 5 to 17 rows in batches of 4: 3 + 2 rows, or 4 + 4 + 3 + 3 + 3, in more than one pass."""
    result = trained(problem, A.FedAvg(lr=0.3, local_steps=STEPS, batch=4, even=True), ROUNDS)
    expected = baselines.fedavg(problem, ROUNDS, 0.3, STEPS, Even(4), "size", start=START, seed=SEED)
    np.testing.assert_allclose(matrix(result.global_params), expected, atol=1e-12)
    short = baselines.fedavg(problem, ROUNDS, 0.3, STEPS, 4, "size", start=START, seed=SEED)
    assert np.abs(expected - short).max() > 1e-4


def test_epochs_take_as_many_even_batches_as_others(problem) -> None:
    result = trained(problem, A.Local(lr=0.3, local_epochs=2, batch=4, even=True), ROUNDS)
    steps = [2 * -(-int(size) // 4) for size in problem.federation.train.sizes]
    expected = baselines.local(problem, ROUNDS, 0.3, steps, Even(4), start=START, seed=SEED)
    for client in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(client)), expected[client], atol=1e-12)
    assert result.iterations == ROUNDS * 2 * -(-17 // 4)


@pytest.mark.full
@pytest.mark.parametrize("variant", ["first-order", "hessian-free", "exact"])
def test_the_batches_that_a_meta_step_draws_are_even_too(problem, variant) -> None:
    method = A.PerFedAvg(lr=0.3, local_steps=STEPS, batch=4, even=True, variant=variant, inner_lr=0.2, delta=0.01)
    with jax.enable_x64(True):
        expected = baselines.perfedavg(problem, ROUNDS, 0.3, 0.2, STEPS, Even(4), variant, 0.01, start=START, seed=SEED)
    np.testing.assert_allclose(matrix(trained(problem, method, ROUNDS).global_params), expected, atol=1e-10)


@pytest.mark.full
def test_fomaml_sends_the_gradient_of_an_even_batch(problem) -> None:
    method = A.FOMAML(lr=0.5, inner_lr=0.2, inner_steps=4, batch=4, even=True)
    expected = baselines.fomaml(problem, ROUNDS, 0.5, 0.2, 4, Even(4), start=START, seed=SEED)
    np.testing.assert_allclose(matrix(trained(problem, method, ROUNDS).global_params), expected, atol=1e-10)


@pytest.mark.parametrize("work", few([{"local_steps": 7}, {"local_epochs": 2}], {"local_steps": 7}))
@pytest.mark.parametrize(("sizes", "batch"), [((8, 12, 4), 4), ((3, 7, 5), 9), ((3, 4, 8), 4)])
def test_where_no_batch_is_short_the_bits_are_those_of_the_usual_cut(work, sizes, batch) -> None:
    """Multiples of the batch, clients that fit into one, and both."""
    draws = np.random.default_rng(0)
    rows = [(draws.normal(size=(n, 4)), draws.integers(0, 3, n)) for n in sizes]
    small = pf.Problem(pf.Federation.from_arrays(rows, classes=3, validation=0, test=0), pf.models.linear(), "softmax")
    usual, even = (bits(small, A.Ditto(lr=0.3, batch=batch, even=even, **work)) for even in (False, True))
    assert usual == even


def test_local_models_are_trained_on_even_batches_too(problem, tmp_path) -> None:
    """One pass over each client's rows from zero; the bank is another one than with the usual batches."""
    usual, bank = (
        pf.local_models(problem, tmp_path, epochs=1, lr=0.3, batch=4, even=even, dtype="float64")
        for even in (False, True)
    )
    with jax.enable_x64(True):
        shared = randomness.purpose_key(0, Purpose.PREPARE)
        for place, client in enumerate(clients_of(problem)):
            key = randomness.client_key(shared, jnp.asarray(problem.client_ids[place], jnp.uint32))
            order = randomness.shuffled(jax.random.fold_in(key, 0), client.size, jnp.arange(client.size))
            w = np.zeros((5, 3))
            for rows in np.array_split(np.asarray(order), -(-client.size // 4)):
                w = w - 0.3 * client.grad(w, rows)
            np.testing.assert_allclose(
                matrix(jax.tree.map(lambda leaf, at=place: leaf[at], bank.params)), w, atol=1e-12
            )
    with pytest.raises(pf.PolyfedError, match="even was null, now it is true"):
        usual.refuse_other(problem, bank.training, None, "float64")


def test_what_was_begun_before_there_was_a_choice_goes_on(problem) -> None:
    """Checkpoints, journals and the terms that sites pinned say nothing of it where it is off."""
    off, on = A.FedAvg(), A.FedAvg(even=True)
    words = [run_identity(problem, method, 1.0, 0, None, "float64") for method in (off, on)]
    assert set(words[1]) - set(words[0]) == {"algorithm.even"}
    assert "even" not in method_to_json(off)["hyper_parameters"]
    assert [method_from_json(method_to_json(method)) for method in (off, on)] == [off, on]


@pytest.mark.parametrize("rows", range(1, 60))
def test_the_smallest_batch_is_known_without_cutting(rows) -> None:
    for size in (1, 2, 7, 20, 59, 80):
        parts = np.array_split(np.arange(rows), -(-rows // size))
        assert Batching(size, 1, even=True).fewest(rows) == min(map(len, parts))
        assert max(map(len, parts)) <= size
        assert Batching(size, 1).fewest(rows) == min(min(size, rows), rows - (len(parts) - 1) * size)
    assert Batching("full", 1).fewest(rows) == rows
    assert Batching(7, 1, replace=True).fewest(rows) == min(7, rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replace": True, "even": True}, "fedavg: batches are cut by replace or by even, found both"),
        ({"even": "yes"}, "fedavg: even must be true or false, found 'yes'"),
        ({"even": 1}, "fedavg: even must be true or false, found 1"),
    ],
)
def test_batches_are_cut_in_one_way(problem, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.simulate(problem, A.FedAvg(**options), rounds=1)
