"""What privacy would cost."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.stats import norm

import polyfed as pf
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.models import linear
from polyfed.problem.metrics import metric_named
from polyfed.problem.problem import Problem
from polyfed.studies.advice.contenders import ALONE, Contender, contenders
from polyfed.studies.advice.private import DELTA, noise_for, same_weights
from polyfed.studies.advice.trials import run_trial
from tests.studies.advice.test_advice import DIRECTION, federation, site

pytestmark = pytest.mark.skipif(find_spec("dp_accounting") is None, reason="needs polyfed[privacy]")


def delta_of(noise: float, rounds: int, epsilon: float) -> float:
    """Balle and Wang 2018, Theorem 8, for the sum of `rounds` Gaussian releases of sensitivity 1."""
    m = np.sqrt(rounds) / noise
    return float(norm.cdf(m / 2 - epsilon / m) - np.exp(epsilon) * norm.cdf(-m / 2 - epsilon / m))


@pytest.mark.parametrize(("epsilon", "rounds"), [(8.0, 50), (1.0, 20), (0.1, 1)])
def test_the_noise_spends_the_epsilon_and_no_more(epsilon: float, rounds: int) -> None:
    noise = noise_for(epsilon, rounds, 6)
    assert delta_of(noise, rounds, epsilon) <= DELTA
    assert delta_of(0.999 * noise, rounds, epsilon) > DELTA


@pytest.mark.full
@pytest.mark.parametrize("way", [way for way in contenders() if way.name != ALONE], ids=lambda way: way.name)
def test_every_way_of_training_has_a_private_form(way: Contender) -> None:
    candidate = dataclasses.replace(way.candidates[0], algorithm=same_weights(way.candidates[0].algorithm))
    fed = federation({f"s{k}": site(40, DIRECTION, k) for k in range(3)})
    problem = Problem(fed, linear(), "softmax", l2=1e-3)
    one, proper = Contender("private", "private", (candidate,)), metric_named("log_loss", problem)
    trial = run_trial(one, "linear", [problem], proper, 2, lambda _: None, privacy=Privacy(0.3, 1.0, study=True))
    assert trial is not None
    assert np.isfinite(trial.loss).all()


@pytest.mark.full
def test_little_privacy_costs_little_and_much_of_it_costs_what_training_together_had_brought() -> None:
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(6)})
    costs = []
    for epsilon in (1e4, 0.01):
        advice = pf.advise(fed, minutes=30, splits=4, rounds=10, methods=["global"], models=["linear"], epsilon=epsilon)
        assert advice.privacy is not None
        costs.append(advice.privacy)
        told = advice.as_dict()["privacy"]
        assert [line["client"] for line in told["sites"]] == list(fed.clients)
        assert "Privacy of the sites at epsilon" in advice.privacy.sentence
    assert abs(costs[0].cost.estimate) < 0.02
    assert costs[1].cost.estimate > costs[0].cost.estimate
    assert costs[1].noise > 100 * costs[0].noise
