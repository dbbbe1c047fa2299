"""The entry point: history, results, precision, divergence, what travels."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.programs import COMPILED
from polyfed.engine.recent import Recent
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import matrix
from tests.algorithms.references.shared import clients_of
from tests.conftest import unequal_clients


def test_the_history_has_a_row_for_the_start_each_evaluation_and_the_end(problem) -> None:
    history = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=10, eval_every=4).history
    assert history["round"].tolist() == [0, 4, 8, 10]
    assert history["iterations"].tolist() == [0, 40, 80, 100]
    assert {"round", "iterations", "bits_up", "bits_down", "seconds", "objective"} <= set(history.columns)
    assert (history["seconds"].diff().iloc[1:] > 0).all()


def test_bits_are_those_of_the_messages(problem) -> None:
    """15 parameters: FedAvg by size sends them and a weight; uniform, only them; SCAFFOLD twice as much each way."""
    parameters = 5 * 3

    def bits(method, **options):
        simulation = Simulation(problem, method, participation=2, **options)
        simulation.advance(3)
        return simulation.bits_up / 6, simulation.bits_down / 6

    assert bits(pf.algorithms.FedAvg()) == (32 * (parameters + 1), 32 * parameters)
    assert bits(pf.algorithms.FedAvg(weighting="uniform")) == (32 * parameters, 32 * parameters)
    assert bits(pf.algorithms.FedAvg(weighting="uniform"), dtype="float64") == (64 * parameters, 64 * parameters)
    assert bits(pf.algorithms.Scaffold()) == (64 * parameters, 64 * parameters)
    assert bits(pf.algorithms.Local()) == (0, 0)


def test_the_objective_is_the_mean_over_clients_with_the_ridge(problem) -> None:
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=3, dtype="float64")
    by_hand = [client.loss(matrix(result.global_params)) for client in clients_of(problem)]
    assert result.history["objective"].iloc[-1] == pytest.approx(np.mean(by_hand), abs=1e-13)


def test_evaluation_covers_every_client_and_split(problem) -> None:
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=3, participation=1, dtype="float64")
    for split in ("train", "validation", "test"):
        table = result.evaluate(split)
        assert table["client"].tolist() == list(problem.federation.clients)
        accuracies, losses = table["global_accuracy"].to_numpy(), table["global_loss"].to_numpy()
        for index in range(len(problem)):
            x, y = problem.federation.split(split).of(index)
            logits = x @ result.global_params["w"] + result.global_params["b"]
            assert accuracies[index] == pytest.approx(np.mean(np.argmax(logits, axis=1) == y))
            lse = np.log(np.exp(logits).sum(axis=1))
            loss = np.mean(lse - logits[np.arange(len(y)), y])
            assert losses[index] == pytest.approx(loss, abs=1e-12)


def test_fine_tuning_starts_from_the_global_model_and_uses_training_rows_only(problem) -> None:
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=5, dtype="float64")
    tune = pf.FineTune(steps=4, lr=0.2, batch="full")
    tuned = result.evaluate("test", finetune=tune)
    for index, client in enumerate(clients_of(problem)):
        params = matrix(result.global_params)
        for _ in range(4):
            params = params - 0.2 * client.grad(params)
        x, y = problem.federation.test.of(index)
        assert tuned["finetuned_accuracy"][index] == np.mean(np.argmax(x @ params[:-1] + params[-1], axis=1) == y)
        logits = x @ params[:-1] + params[-1]
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        told = result.predict(problem.federation.clients[index], x, finetune=tune)
        np.testing.assert_allclose(told.iloc[:, -1], chances[:, -1], atol=1e-12)


def test_metrics_of_the_deployed_model_are_those_of_personal(problem) -> None:
    result = pf.simulate(problem, pf.algorithms.Local(), rounds=5, dtype="float64")
    table = result.evaluate("test")
    assert "global_loss" not in table
    x, y = problem.federation.test.of(3)
    own = result.personal("site-3")
    assert table["personal_accuracy"][3] == np.mean(np.argmax(x @ own["w"] + own["b"], axis=1) == y)


def test_precision_is_the_runs_not_the_processs(problem) -> None:
    for process in (False, True):
        with jax.enable_x64(process):
            single = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=2, dtype="float32")
            double = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=2, dtype="float64")
        assert single.global_params["w"].dtype == np.float32
        assert double.global_params["w"].dtype == np.float64


@pytest.mark.parametrize(("start", "value"), [("zeros", 0.0), ("ones", 1.0)])
def test_training_starts_where_it_is_told_to(problem, start, value) -> None:
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=0, init=start)
    assert (result.global_params["w"] == value).all()


def test_given_parameters_are_not_written_over(problem) -> None:
    start = {"w": jnp.ones((4, 3)), "b": jnp.zeros(3)}
    pf.simulate(problem, pf.algorithms.FedAvg(), rounds=2, init=start)
    assert (np.asarray(start["w"]) == 1).all()


def test_a_users_own_model_is_an_init_and_an_apply(federation) -> None:
    def init(key):
        return {"scale": jnp.ones(()), "w": 0.1 * jax.random.normal(key, (4, 3))}

    def apply(params, x):
        return params["scale"] * jnp.tanh(x) @ params["w"]

    problem = pf.Problem(federation, (init, apply), "softmax")
    history = pf.simulate(problem, pf.algorithms.Scaffold(lr=0.3), rounds=10).history
    assert history["objective"].iloc[-1] < history["objective"].iloc[0]


def test_divergence_is_said_and_stops_the_run() -> None:
    problem = pf.Problem(
        pf.data.load("quadratics", clients=3, dim=4, mu=0.5, L=1.0), pf.models.linear(bias=False), "squared"
    )
    with pytest.warns(RuntimeWarning, match="fedavg diverged.*smaller lr"):
        result = pf.simulate(problem, pf.algorithms.FedAvg(lr=50.0, batch="full"), rounds=500)
    assert result.diverged is not None
    assert result.history["round"].iloc[-1] < 500


def test_a_broken_client_is_named_in_the_log(caplog) -> None:
    clients = unequal_clients()
    x, y = clients["site-4"]["train"]
    clients["site-4"]["train"] = (x * 1e200, y)
    problem = pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.mlp([4]), "softmax")
    with caplog.at_level(logging.WARNING, "polyfed"):
        result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=3, dtype="float64")
    assert result.excluded == {"site-4": 3}
    assert "client 'site-4'" in caplog.text
    assert "site-3" not in caplog.text


def test_the_rest_goes_on_as_if_the_broken_client_had_been_absent() -> None:
    clients = unequal_clients()
    x, y = clients["site-4"]["train"]
    broken = {**clients, "site-4": {**clients["site-4"], "train": (x * 1e200, y)}}
    without = {name: rows for name, rows in clients.items() if name != "site-4"}

    def model(given):
        problem = pf.Problem(pf.Federation.from_arrays(given, classes=3), pf.models.mlp([4]), "softmax")
        return pf.simulate(problem, pf.algorithms.FedAvg(), rounds=4, dtype="float64").global_params

    for a, b in zip(jax.tree.leaves(model(broken)), jax.tree.leaves(model(without)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rounds": -1}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"rounds": 3, "eval_every": 0}, "eval_every"),
        ({"rounds": 3, "dtype": "float16"}, "dtype"),
        ({"rounds": 3, "seed": -1}, "seed"),
        ({"rounds": 3, "init": "twos"}, "init"),
        ({"rounds": 3, "init": {"w": np.ones((4, 3))}}, "init"),
        ({"rounds": 3, "init": {"w": np.ones((4, 2)), "b": np.ones(3)}}, "shape"),
        ({"rounds": 3, "devices": 99}, "devices"),
        ({"rounds": 3, "chunk": 0}, "chunk"),
        ({"rounds": 3, "participation": 7}, "participation"),
    ],
)
def test_a_wrong_option_is_refused_by_name(problem, options, word) -> None:
    with pytest.raises(pf.PolyfedError, match=word):
        pf.simulate(problem, pf.algorithms.FedAvg(), **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedavg", {"lr": -0.1}, "fedavg: lr must be above 0, found -0.1"),
        ("fedavg", {"lr": "fast"}, "fedavg: lr must be a number"),
        ("fedavg", {"lr": pf.Decay(0.1, -1.0)}, "fedavg: lr.rate must be above 0"),
        ("fedavg", {"local_steps": 0}, "fedavg: local_steps must be a whole number, at least 1, found 0"),
        ("fedavg", {"batch": "all"}, "fedavg: batch must be"),
        ("fedavg", {"weighting": "rows"}, "fedavg: weighting must be one of size, uniform"),
        ("fedavg", {"server_optimizer": "rmsprob"}, "did you mean 'rmsprop'"),
        ("fedprox", {"mu": -1.0}, "fedprox: mu must be at least 0, found -1"),
        ("scaffold", {"option": "III"}, "scaffold: option must be one of I, II"),
    ],
)
def test_a_hyper_parameter_that_makes_no_sense_is_refused(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.simulate(problem, pf.algorithms.REGISTRY[name](**options), rounds=1)


def test_rounds_between_evaluations_are_one_compiled_call(problem) -> None:
    """No Python per round: the compiled program is called far less often than there are rounds."""
    from polyfed.engine.simulation import Simulation

    calls = 0
    original = Simulation.advance

    def counted(self, rounds):
        nonlocal calls
        calls += 1
        return original(self, rounds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulation, "advance", counted)
        pf.simulate(problem, pf.algorithms.FedAvg(local_steps=1), rounds=400, eval_every=400)
    assert calls < 40


def test_a_second_run_of_the_same_shapes_compiles_nothing(problem) -> None:
    pf.simulate(problem, pf.algorithms.FedAvg(lr=0.1), rounds=2)
    assert pf.simulate(problem, pf.algorithms.FedAvg(lr=0.2), rounds=5, seed=8).compile_seconds == 0


def test_problems_of_one_task_and_shape_share_programs() -> None:
    """Other rows compile nothing; another ridge or activation does."""

    def run(seed: int, model: Any, l2: float = 0.01) -> pf.Result:
        federation = pf.Federation.from_arrays(unequal_clients(seed), classes=3)
        return pf.simulate(pf.Problem(federation, model, l2=l2), pf.algorithms.FedAvg(batch=4), rounds=2)

    first = run(0, pf.models.mlp([5]))
    second = run(1, pf.models.mlp([5]))
    assert second.compile_seconds == 0
    assert not np.array_equal(first.global_params[0]["w"], second.global_params[0]["w"])
    alone = [run(1, pf.models.mlp([5]), l2=0.02), run(1, pf.models.mlp([5], "tanh"))]
    assert all(other.compile_seconds > 0 for other in alone)
    COMPILED.clear()
    np.testing.assert_array_equal(run(1, pf.models.mlp([5])).global_params[0]["w"], second.global_params[0]["w"])


def test_the_latest_programs_are_kept_and_no_more(federation, monkeypatch) -> None:
    """Each holds memory maps, of which a process has only so many."""
    monkeypatch.setattr("polyfed.engine.programs.COMPILED", kept := Recent(3))
    problem = pf.Problem(federation, pf.models.linear(), "softmax")
    for steps in (1, 2, 3):
        pf.simulate(problem, pf.algorithms.FedAvg(local_steps=steps), rounds=1)
    assert len(kept) == 3
    again = pf.simulate(problem, pf.algorithms.FedAvg(local_steps=3), rounds=1)
    assert again.compile_seconds == 0
