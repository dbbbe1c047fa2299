"""A run's cautions: refused before it begins, said beside it, and kept in its summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import log_loss

import polyfed as pf
from polyfed.algorithms import FedAvg
from polyfed.core.errors import PolyfedError
from polyfed.studies.cautions import after_run_cautions, constant_losses
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, compare, run
from polyfed.studies.tuning import tune


def clients(count: int = 2, classes: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    made = {}
    for i in range(count):
        x = random.normal(size=(60, 4))
        made[f"site-{i}"] = x, np.argmax(x[:, :classes] + random.normal(size=(60, classes)), axis=1)
    return made


def config(folder: Path, rows: dict, name: str = "fedavg", **algorithm: object):
    pf.Federation.from_arrays(rows, classes=3).save(folder / "data.safetensors")
    data = {"source": "federation", "path": str(folder / "data.safetensors")}
    settings = {"rounds": 3, "alone": False, "finetune_steps": 0, "save_models": False}
    return make_config({"data": data, "algorithm": {"name": name, **algorithm}, "run": settings})


def test_the_constant_predictors_loss_is_that_of_scikit_learns_dummy() -> None:
    fed = pf.Federation.from_arrays(clients())
    expected = []
    for client in range(2):
        x, y = fed.train.of(client)
        expected.append(log_loss(y, DummyClassifier(strategy="prior").fit(x, y).predict_proba(x)))
    measured: Any = constant_losses(pf.Problem(fed, pf.models.linear()))
    np.testing.assert_allclose(measured, expected, rtol=1e-12)
    y = np.random.default_rng(1).normal(size=(40, 2))
    real = pf.Federation.from_arrays([(y, y)], validation=0, test=0)
    half = 0.5 * ((y - y.mean(axis=0)) ** 2).sum(axis=1).mean()
    measured = constant_losses(pf.Problem(real, pf.models.linear(), "squared"))
    np.testing.assert_allclose(measured, [half], rtol=1e-12)


def test_a_stepsize_that_ends_above_the_constant_predictor_is_named() -> None:
    problem = pf.Problem(pf.Federation.from_arrays(clients()), pf.models.linear())
    for lr, doubtful in ((300.0, True), (0.3, False)):
        method = FedAvg(lr=lr, local_steps=5)
        result = pf.simulate(problem, method, rounds=5)
        sentences = [str(caution) for caution in after_run_cautions(problem, method, result.metrics())]
        assert len(sentences) == doubtful
        if doubtful:
            assert sentences[0].startswith("fedavg with lr = 300 ends with a training loss of ")
    assert after_run_cautions(problem, FedAvg(), {"personal": {"test": {}}}) == []


def test_with_class_weights_both_losses_are_weighed() -> None:
    problem = pf.Problem(pf.Federation.from_arrays(clients()), pf.models.linear(), class_weight=[1.0, 4.0, 0.5])
    expected = []
    for client in range(2):
        x, y = problem.federation.train.of(client)
        weights = np.array([1.0, 4.0, 0.5])[y]
        dummy = DummyClassifier(strategy="prior").fit(x, y, sample_weight=weights).predict_proba(x)
        expected.append(log_loss(y, dummy, sample_weight=weights) * weights.mean())
    measured: Any = constant_losses(problem)
    np.testing.assert_allclose(measured, expected, rtol=1e-12)
    for lr, doubtful in ((300.0, True), (0.3, False)):
        method = FedAvg(lr=lr, local_steps=5)
        result = pf.simulate(problem, method, rounds=5)
        assert len(after_run_cautions(problem, method, result.metrics())) == doubtful


def test_cautions_are_said_and_kept_in_the_summary(tmp_path: Path) -> None:
    rows = clients() | {"small": (np.ones((9, 4)), np.arange(9) % 3)}
    heard: list[str] = []
    (record,) = run(config(tmp_path, rows, lr=1000.0), tmp_path / "run", Options(say=heard.append))
    kept = json.loads((tmp_path / "run/summary.json").read_text())["cautions"]
    assert kept == record.summary["cautions"]
    assert record.summary["worse_than_constant"] is True
    assert "1 client has fewer than 20 rows: small" in kept
    assert kept[-1].startswith("fedavg with lr = 1000 ends with")
    assert [line for line in heard if line.startswith("caution: ")] == [f"caution: {sentence}" for sentence in kept]


def test_how_labels_were_read_is_said_and_kept_in_the_summary(tmp_path: Path) -> None:
    table = ["site,dose,died", *(f"{site},{i % 7}.5,{1 + i % 2}" for site in "ab" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(table))
    data = {"source": "csv", "path": str(tmp_path / "t.csv"), "client": "site", "target": "died"}
    settings = {"rounds": 1, "alone": False, "finetune_steps": 0, "save_models": False}
    heard: list[str] = []
    read = make_config({"data": data, "algorithm": {"name": "fedavg"}, "run": settings})
    run(read, tmp_path / "run", Options(say=heard.append))
    assert json.loads((tmp_path / "run/summary.json").read_text())["notes"] == [
        "labels 1 -> 0, 2 -> 1 (the positive class)"
    ]
    assert "data: labels 1 -> 0, 2 -> 1 (the positive class)" in heard


def test_one_class_and_one_client_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    same = {name: (x, np.zeros(60, int)) for name, (x, _) in clients().items()}
    for rows, message in ((same, "every row of every client has the label '0'"), (clients(1), "one client, 'site-0'")):
        settings = config(tmp_path, rows)
        for command in (run, compare):
            with pytest.raises(PolyfedError, match=f"config: .*{message}"):
                command(settings, tmp_path / "out", Options(say=print))
        problem = pf.Problem(pf.Federation.from_arrays(rows, classes=3), pf.models.linear())
        with pytest.raises(PolyfedError, match=message):
            tune(problem, {"fedavg": {"lr": [0.1, 1.0]}}, rounds=1)
    assert not (tmp_path / "out").exists()


def test_training_alone_may_be_done_alone(tmp_path: Path) -> None:
    (record,) = run(config(tmp_path, clients(1), "local"), tmp_path / "out", Options(say=print))
    assert "there is one client, site-0, which has nobody to learn from" in record.summary["cautions"]
    assert record.summary["worse_than_constant"] is False
