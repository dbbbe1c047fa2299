"""The yardstick of going alone: pure local models for mixtures, and none where training alone diverged."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyfed.studies import experiment
from polyfed.studies.config import make_config

BASE: dict[str, dict[str, Any]] = {
    "data": {"source": "synthetic", "clients": 4, "sizes": 30, "features": 5, "classes": 3},
    "problem": {"l2": 0.01},
    "algorithm": {"name": "flix", "lr": 200.0},
    "run": {"rounds": 3, "dtype": "float64"},
}


def outcome(tmp_path: Path, **algorithm: Any) -> tuple[Any, dict[str, Any]]:
    sections = copy.deepcopy(BASE)
    sections["algorithm"] |= algorithm
    sections["run"] |= {"finetune_steps": 0, "save_models": False}
    config = make_config(sections, where="test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a stepsize above the theorem's limit, and divergence
        [record] = experiment.run(config, tmp_path / "run", experiment.Options(say=lambda text: None))
    return config, record.summary


@pytest.mark.full
def test_who_mixes_is_compared_with_its_pure_local_models(tmp_path) -> None:
    """The server's stepsize of a mixture says nothing about local training."""
    config, summary = outcome(tmp_path)
    own = config.problem.local_models().params
    names = config.problem.federation.clients
    losses = [
        config.problem.value({key: leaf[i] for key, leaf in own.items()}, name) - 0.005 * _squares(own, i)
        for i, name in enumerate(names)
    ]
    assert summary["models"]["alone"]["train"]["loss"]["mean"] == pytest.approx(np.mean(losses), rel=1e-8)


def test_nobody_is_compared_with_a_training_alone_that_diverged(tmp_path) -> None:
    _, summary = outcome(tmp_path, name="fedavg", lr=1e200)
    assert "alone" not in summary["models"]
    assert summary["gains"]["alone"] is None


def test_fine_tuning_takes_no_stepsize_of_a_mixture() -> None:
    config = make_config(copy.deepcopy(BASE), where="test")
    tuned = config.finetune(config.methods[0].algorithm)
    assert tuned is not None
    assert tuned.lr < 1


def _squares(params: dict[str, np.ndarray], client: int) -> float:
    return float(sum(np.sum(leaf[client] ** 2) for leaf in params.values()))
