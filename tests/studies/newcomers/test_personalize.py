"""Clients that join a finished run: their models follow the method's rule, from training rows alone."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import polyfed as pf
from polyfed.algorithms.shared import newcomer
from polyfed.core import randomness
from polyfed.core.randomness import Purpose
from polyfed.studies.newcomers import trained
from tests.conftest import few, small_method, unequal_clients

SECTION = {"model": "linear", "bias": True, "loss": "softmax", "l2": 0.01}
LATE = ("site-1", "site-3")


@pytest.fixture(scope="module")
def others() -> pf.Problem:
    clients = {name: rows for name, rows in unequal_clients().items() if name not in LATE}
    return pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)


def late(**changes) -> pf.Federation:
    """Two newcomers; `changes` replace splits of the first."""
    clients = {name: dict(unequal_clients()[name]) for name in LATE}
    clients[LATE[0]] |= changes
    return pf.Federation.from_arrays(clients, classes=3)


def by_hand(result: pf.Result, client: str):
    """The method's rule on one newcomer, without the engine's program."""
    simulation, newcomers = result.simulation, late()
    problem = pf.Problem(newcomers, pf.models.linear(), "softmax", l2=0.01)
    with jax.enable_x64(True):
        f = dataclasses.replace(problem.objective(client, "train"), round=jax.numpy.asarray(simulation.round))
        words = randomness.client_ids([client])[0]
        key = randomness.client_key(randomness.purpose_key(simulation.seed, Purpose.FINETUNE), words)
        return jax.jit(lambda server: newcomer.model_of(simulation.method, server, f, key))(simulation.server)


RULES = ("apfl", "diana", "fedavg", "fedbc", "l2gd", "perfedavg", "plsgd", "scafflix", "scaffold")
"""Methods of each kind of rule, and of each kind of state on the server; all others adapt in tests/algorithms."""


@pytest.mark.parametrize("name", few(RULES, "apfl"))
def test_methods_give_newcomers_the_models_of_their_rules_also_from_disk(others, name, tmp_path) -> None:
    result = pf.simulate(others, small_method(name), rounds=3, eval_every=3, dtype="float64", seed=2)
    found = pf.personalize(result, late())
    assert found.clients == LATE
    np.testing.assert_allclose(found.personal(LATE[1])["w"], by_hand(result, LATE[1])["w"], atol=1e-12)
    assert ("global" in found.metrics) == (result.global_params is not None)
    trained.save(tmp_path, trained.Trained.of(result.simulation))
    kept = trained.restored(tmp_path / "server", SECTION)
    assert kept.round == 3
    leaves = zip(jax.tree.leaves(kept.server), jax.tree.leaves(result.simulation.server), strict=True)
    assert all(np.array_equal(a, b) for a, b in leaves)
    assert jax.tree.structure(kept.server) == jax.tree.structure(result.simulation.server)
    assert repr(kept.method) == repr(result.simulation.method)


def test_only_training_rows_make_the_model_and_only_held_out_rows_judge_it(others) -> None:
    result = pf.simulate(others, small_method("apfl"), rounds=3, eval_every=3, dtype="float64")
    one = pf.personalize(result, late())
    rows, labels = unequal_clients()[LATE[0]]["test"]
    held = unequal_clients()[LATE[0]]["validation"]
    other = pf.personalize(result, late(test=(rows, (labels + 1) % 3), validation=(held[0], (held[1] + 1) % 3)))
    np.testing.assert_array_equal(one.params["w"], other.params["w"])
    assert one.rows[0]["personal_accuracy"] != other.rows[0]["personal_accuracy"]
    assert one.split == "test"
    assert [row["rows"] for row in one.rows] == [4, 4]
    expected = np.argmax(rows @ one.personal(0)["w"] + one.personal(0)["b"], axis=1) == labels
    assert one.rows[0]["personal_accuracy"] == pytest.approx(expected.mean())


@pytest.mark.full
def test_validation_rows_judge_where_there_are_no_test_rows_unless_the_method_learns_from_them(others) -> None:
    plain = {name: {part: unequal_clients()[name][part] for part in ("train", "validation")} for name in LATE}
    newcomers = pf.Federation.from_arrays(plain, classes=3)
    for method, split in (
        (small_method("apfl"), "validation"),
        (pf.algorithms.APFL(alpha_on="validation", batch=4), None),
    ):
        found = pf.personalize(pf.simulate(others, method, rounds=2), newcomers)
        assert found.split == split
        assert (found.rows[0]["personal_accuracy"] is None) == (split is None)


@pytest.mark.full
def test_steps_and_fine_tuning_take_the_place_of_the_methods_own_work(others) -> None:
    result = pf.simulate(others, pf.algorithms.FedAvg(lr=0.1, local_steps=3, batch="full"), rounds=2, dtype="float64")
    given = pf.personalize(result, late(), steps=7).personal(0)["w"]
    tuned = pf.personalize(result, late(), finetune=pf.FineTune(7, 0.1, "full")).personal(0)["w"]
    own = pf.personalize(result, late()).personal(0)["w"]
    np.testing.assert_allclose(given, tuned, atol=1e-12)
    assert np.abs(given - own).max() > 1e-4
    with pytest.raises(pf.PolyfedError, match="steps must be a whole number, at least 1, found 0"):
        pf.personalize(result, late(), steps=0)
    alone = pf.simulate(others, small_method("local"), rounds=1)
    with pytest.raises(pf.PolyfedError, match="local has no global model to fine-tune"):
        pf.personalize(alone, late(), finetune=pf.FineTune())


def test_one_newcomer_may_come_as_arrays_and_is_saved(others, tmp_path) -> None:
    result = pf.simulate(others, small_method("fedavg"), rounds=2)
    x, y = unequal_clients()["site-1"]["train"]
    found = pf.personalize(result, (x, y), test=0.3)
    assert found.clients == ("newcomer",)
    assert list(found.table["train_rows"] + found.table["rows"]) == [17 - 2]
    found.save(tmp_path)
    np.testing.assert_array_equal(load_file(tmp_path / "models/newcomer.safetensors")["w"], found.personal(0)["w"])
    assert "personal_test_accuracy" in (tmp_path / "newcomers.csv").read_text()


def test_data_that_does_not_fit_is_refused_in_a_sentence(others) -> None:
    result = pf.simulate(others, small_method("fedavg"), rounds=1)
    x, y = unequal_clients()["site-1"]["train"]
    cases = [
        ((x[:, :3], y), r"rows have shape \(3,\), expected \(4,\) as in the run"),
        ((x, y + 5), "a newcomer has the label '5', which the run does not know; it knows 0, 1, 2"),
        ((x, y.astype(float) + 0.5), "targets are not class labels, expected 0 to 2"),
        ((x, np.array(["a", "b", "c"])[y]), "labels are text, expected numbers as in the run"),
        (((100 * abs(x)).astype(np.uint8), y), "features are bytes, expected real numbers"),
    ]
    for data, message in cases:
        with pytest.raises(pf.PolyfedError, match=message):
            pf.personalize(result, data)
    with pytest.raises(pf.PolyfedError, match="run must be a run directory or a Result, found int"):
        pf.personalize(3, (x, y))  # pyright: ignore[reportArgumentType]


def test_named_labels_keep_their_numbers_and_unknown_ones_are_named() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    names = np.where(x[:, 0] > 0, "yes", np.where(x[:, 1] > 0, "maybe", "no"))
    fed = pf.Federation.from_arrays([(x[:20], names[:20]), (x[20:], names[20:])])
    result = pf.simulate(pf.Problem(fed, pf.models.linear()), pf.algorithms.FedAvg(lr=0.5), rounds=20)
    sure = names != "maybe"  # the newcomer never says maybe, which comes first among the run's labels
    found = pf.personalize(result, (x[sure], names[sure]), test=0.4)
    assert found.problem.federation.classes == 3
    assert found.rows[0]["global_accuracy"] > 0.8
    with pytest.raises(pf.PolyfedError, match="has the label 'never', which the run does not know; it knows maybe, no"):
        pf.personalize(result, (x, np.where(sure, names, "never")))


@pytest.mark.parametrize(
    "labels", [(-1, 1), pytest.param((0, 1), marks=pytest.mark.full), pytest.param((1, 2), marks=pytest.mark.full)]
)
def test_binary_labels_are_read_as_the_run_reads_them(labels) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.where(x[:, 0] > 0, labels[1], labels[0])
    fed = pf.Federation.from_arrays([(x[:30], y[:30]), (x[30:], y[30:])])
    result = pf.simulate(pf.Problem(fed, pf.models.linear(), "logistic"), pf.algorithms.FedAvg(lr=0.5), rounds=20)
    only = y == labels[1]
    for data in ((x, y), (x[only], y[only])):
        assert pf.personalize(result, data).rows[0]["global_accuracy"] > 0.8
    with pytest.raises(pf.PolyfedError, match="a newcomer has the label '7', which the run does not"):
        pf.personalize(result, (x, np.where(only, 7, 1)))


def test_regression_targets_are_judged_by_their_error(others) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    fed = pf.Federation.from_arrays([(x[:20], y[:20]), (x[20:], y[20:])])
    result = pf.simulate(pf.Problem(fed, pf.models.linear(), "squared"), pf.algorithms.FedAvg(lr=0.1), rounds=30)
    found = pf.personalize(result, (x, 2 * y))
    assert found.rows[0]["personal_squared_error"] < found.rows[0]["global_squared_error"]


def test_a_diverged_result_takes_no_newcomers(others) -> None:
    with pytest.warns(RuntimeWarning, match="diverged"):
        result = pf.simulate(others, pf.algorithms.FedAvg(lr=1e30), rounds=5)
    with pytest.raises(pf.PolyfedError, match="this run diverged"):
        pf.personalize(result, late())
