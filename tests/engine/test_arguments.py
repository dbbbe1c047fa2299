"""What is handed over in place of a problem, a model or an algorithm is refused with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import polyfed as pf
from polyfed.algorithms import FedAvg, FedBC, FedProx
from polyfed.studies.config import make_config

EXPECTED_MODEL = r"expected a model of polyfed.models, an Equinox module or a pair \(init, apply\), found "


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("mlp", r"expected a model, such as models\.mlp\(\[64\]\), found the word 'mlp'"),
        ("mpl", "unknown model 'mpl'; did you mean 'mlp'"),
        (pf.models.linear, r"expected a model, such as models\.linear\(\), found the function linear itself"),
        (LogisticRegression(), EXPECTED_MODEL + "LogisticRegression"),
        (LogisticRegression, EXPECTED_MODEL + "the class LogisticRegression"),
        (None, EXPECTED_MODEL + "NoneType"),
    ],
)
def test_what_is_no_model(federation: pf.Federation, model: Any, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.Problem(federation, model)


def test_what_is_no_federation_and_no_loss(federation: pf.Federation) -> None:
    arrays: Any = np.ones((3, 2))
    with pytest.raises(pf.PolyfedError, match=r"expected a Federation .*from_arrays.* found ndarray"):
        pf.Problem(arrays, arrays)
    number: Any = 3
    with pytest.raises(pf.PolyfedError, match="unknown loss '3'; known: "):
        pf.Problem(federation, pf.models.linear(), number)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("fedavg", r"expected an algorithm, such as algorithms\.FedAvg\(\), found the word 'fedavg'"),
        ("FedProx", r"expected an algorithm, such as algorithms\.FedProx\(\), found the word 'FedProx'"),
        ("fedvag", "unknown algorithm 'fedvag'; did you mean 'fedavg'"),
        (FedAvg, r"expected an algorithm, such as FedAvg\(\), found the class FedAvg"),
        (LogisticRegression(), r"such as algorithms\.FedAvg\(\), found LogisticRegression"),
    ],
)
def test_what_is_no_algorithm(problem: pf.Problem, algorithm: Any, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.simulate(problem, algorithm, rounds=1)


def test_without_a_number_of_rounds_it_is_asked_for_and_the_algorithm_is_looked_at_first(problem: pf.Problem) -> None:
    word: Any = "fedavg"
    with pytest.raises(pf.PolyfedError, match=r"such as algorithms\.FedAvg\(\), found the word 'fedavg'"):
        pf.simulate(problem, word)
    with pytest.raises(pf.PolyfedError, match="simulate needs the number of rounds, such as rounds=100"):
        pf.simulate(problem, FedAvg())


def test_doubtful_data_is_named_before_a_run_once_for_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    rows = np.tile([[1.0, 2e6], [-1.0, -2e6]], (15, 1))
    one = pf.Problem(pf.Federation.from_arrays({"a": (rows, np.arange(30) % 2)}), pf.models.linear())
    for _ in range(2):
        pf.simulate(one, FedAvg(lr=1e-9), rounds=1)
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "features are on scales of up to 2e+06 (feature 1)",  # what spoils a run comes first
        "there is one client",
    ]


def test_what_is_no_problem_and_no_precision(problem: pf.Problem) -> None:
    federation: Any = problem.federation
    with pytest.raises(pf.PolyfedError, match=r"expected a Problem, .* found Federation"):
        pf.simulate(federation, FedAvg(), rounds=1)
    for dtype in ("float16", "double", np.float64):
        wrong: Any = dtype
        with pytest.raises(pf.PolyfedError, match="dtype must be 'float32' or 'float64', found "):
            pf.simulate(problem, FedAvg(), rounds=1, dtype=wrong)


@pytest.mark.parametrize(
    ("method", "name", "ours"),
    [
        (FedAvg, "learning_rate", "lr"),
        (FedAvg, "eta", "lr"),
        (FedAvg, "step_size", "lr"),
        (FedAvg, "epochs", "local_epochs"),
        (FedAvg, "n_epochs", "local_epochs"),
        (FedAvg, "batch_size", "batch"),
        (FedAvg, "local_step", "local_steps"),
        (FedProx, "lambda", "mu"),
        (FedProx, "proximal_mu", "mu"),
        (FedBC, "lambda", "multiplier"),
        (FedBC, "gamma", "tolerance"),
    ],
)
def test_a_hyper_parameter_by_another_name_is_told_ours(method: Any, name: str, ours: str) -> None:
    expected = f"unknown hyper-parameter {name} of {method.__name__}; did you mean '{ours}'"
    with pytest.raises(pf.PolyfedError, match=expected):
        method(**{name: 0.1})


def test_too_many_values_are_counted() -> None:
    values: Any = range(40)
    with pytest.raises(pf.PolyfedError, match=r"FedAvg has [0-9]+ hyper-parameters, found 40 values"):
        FedAvg(*values)


@pytest.mark.parametrize(
    ("section", "key", "ours"),
    [
        ("algorithm", "learning_rate", "lr"),
        ("data", "n_clients", "clients"),
        ("run", "epochs", "rounds"),
        ("run", "random_state", "seed"),
        ("problem", "weight_decay", "l2"),
    ],
)
def test_a_key_of_a_config_by_another_name_is_told_ours(section: str, key: str, ours: str) -> None:
    sections: dict[str, dict[str, Any]] = {"data": {"source": "synthetic"}, "algorithm": {"name": "fedavg"}}
    sections.setdefault(section, {})[key] = 1
    with pytest.raises(pf.PolyfedError, match=f"{key}.*; did you mean '{ours}'"):
        _ = make_config(sections).federation


@pytest.mark.parametrize("batch", [0, -2, 2.5, "ful", True])
def test_batches_of_fine_tuning_that_cannot_be(batch: Any) -> None:
    with pytest.raises(pf.PolyfedError, match="FineTune: batch must be a whole number, at least 1, or 'full', found "):
        pf.FineTune(batch=batch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "FineTune: steps must be a whole number, at least 1, found 0"),
        ({"lr": -0.1}, "FineTune: lr must be a number, at least 0, found -0.1"),
        ({"lr": float("nan")}, "FineTune: lr must be a number, at least 0, found nan"),
        ({"lr": "0.1"}, "FineTune: lr must be a number, at least 0, found '0.1'"),
    ],
)
def test_fine_tuning_that_cannot_be(options: Any, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.FineTune(**options)
