"""Plans: the theory's numbers on a problem's own constants, beside what runs measure."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.plan import plan


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    rng = np.random.default_rng(5)
    clients = [(x, np.sign(x @ rng.normal(size=3) + 0.1)) for x in rng.normal(size=(5, 25, 3))]
    fed = pf.Federation.from_arrays(clients, test=0, validation=0)
    return pf.Problem(fed, pf.models.linear(bias=False), "logistic", l2=0.1)


def test_measured_rounds_stay_within_the_theorems(problem) -> None:
    found = plan(problem, alpha=0.4, target=1e-7, measure=True)
    assert [row.method.split(" ")[0] for row in found.predictions] == ["FLIX", "DIANA", "Scafflix"]
    for row in found.predictions:
        assert row.measured_rounds is not None
        assert 0 < row.measured_rounds <= row.rounds
        assert 0 < row.measured_bits_up <= row.bits_up * 1.1


def test_the_constants_are_the_problems(problem) -> None:
    constants = plan(problem).constants
    L, mu = problem.constants.smoothness, problem.constants.convexity
    assert constants["condition_number"] == pytest.approx(np.max(L / mu))
    own = problem.local_models().params["w"]
    distances = np.linalg.norm(own[:, None] - own[None], axis=-1)
    assert constants["local_model_diameter"] == pytest.approx(distances.max())


def test_a_larger_budget_allows_a_larger_alpha(problem) -> None:
    budgets = plan(problem, target=1e-8).budgets
    assert budgets[0] == {"communications": 0.0, "largest_alpha": 0.0}
    alphas = [row["largest_alpha"] for row in budgets]
    assert alphas == sorted(alphas)
    assert alphas[-1] == 1.0
    weights = theory.one_shot_weights(problem.constants.smoothness, 0.5)
    variance = theory.spread(problem.local_models().params["w"], weights).variance
    limit = np.sqrt(2e-8 / (np.mean(problem.constants.smoothness) * variance))
    assert alphas[1] == pytest.approx(limit)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"target": 0.0}, "target must be"), ({"alpha": 0.0}, "nothing is communicated"), ({"alpha": 2.0}, "from 0 to 1")],
)
def test_a_plan_that_makes_no_sense_is_refused(problem, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        plan(problem, **options)


def test_a_plan_needs_a_ridge_and_a_linear_model(problem, federation) -> None:
    with pytest.raises(pf.PolyfedError, match="strong convexity"):
        plan(pf.Problem(problem.federation, pf.models.linear(bias=False), "logistic"))
    with pytest.raises(pf.PolyfedError, match="linear models only"):
        plan(pf.Problem(federation, pf.models.mlp([3]), "softmax", l2=0.1))
