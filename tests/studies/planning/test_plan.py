"""Plans: the theory's numbers on a problem's own constants, beside what runs measure."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.algorithms.shared.local_work import LocalSteps
from polyfed.studies.planning import regimes
from polyfed.studies.planning.plan import plan
from polyfed.studies.planning.regimes import federated, regime


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    rng = np.random.default_rng(5)
    clients = [(x, np.sign(x @ rng.normal(size=3) + 0.1)) for x in rng.normal(size=(5, 25, 3))]
    fed = pf.Federation.from_arrays(clients, test=0, validation=0)
    return pf.Problem(fed, pf.models.linear(bias=False), "logistic", l2=0.1)


@pytest.mark.full
def test_measured_rounds_stay_within_the_theorems(problem) -> None:
    found = plan(problem, alpha=0.4, target=1e-7, measure=True)
    assert [row.method.split(" ")[0] for row in found.predictions] == ["FLIX", "DIANA", "Scafflix"]
    for row in found.predictions:
        assert row.measured_rounds is not None
        assert 0 < row.measured_rounds <= row.rounds
        assert row.measured_bits_up is not None
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


def test_the_budget_is_for_equal_alphas_whatever_alphas_are_planned(problem) -> None:
    """Section 3.1 asks which common alpha a budget allows: its V weighs local models by L_i alone."""
    expected, found = plan(problem, alpha=0.5), plan(problem, alpha=[1.0, 0.0, 0.2, 0.0, 0.9])
    assert found.budgets == expected.budgets
    assert found.constants == expected.constants
    assert found.predictions[0].rounds != expected.predictions[0].rounds


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


@pytest.fixture(scope="module")
def least_squares() -> Callable[[float], pf.Problem]:
    """Six clients of a few noisy rows, whose optima lie around a common one at a given distance."""

    def make(spread: float) -> pf.Problem:
        rng, clients = np.random.default_rng(2), []
        for _ in range(6):
            x, rule = rng.normal(size=(12, 3)), 1.0 + spread * rng.normal(size=3)
            clients.append((x, x @ rule + 1.5 * rng.normal(size=12)))
        fed = pf.Federation.from_arrays(clients, test=0, validation=0)
        return pf.Problem(fed, pf.models.linear(bias=False), "squared", l2=0.05)

    return make


def test_the_regimes_constants_are_those_of_the_clients(least_squares) -> None:
    problem = least_squares(0.5)
    found = federated(problem, 5, 10, 4)
    own, hessians, moments, noise = [], [], [], []
    for x, y in (problem.federation.train.of(i) for i in range(6)):
        hessians.append(x.T @ x / 12 + 0.05 * np.eye(3))
        moments.append(x.T @ y / 12)
        own.append(np.linalg.solve(hessians[-1], moments[-1]))
    common = np.linalg.solve(sum(hessians), sum(moments))
    for (x, y), mine in zip(map(problem.federation.train.of, range(6)), own, strict=True):
        for point in (np.zeros(3), common, mine):
            rows = x * (x @ point - y)[:, None]
            noise.append(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)) / 4)
    L = np.max(np.linalg.eigvalsh(hessians))
    assert found.kappa == pytest.approx(L / np.min(np.linalg.eigvalsh(hessians)))
    assert found.radius == pytest.approx(np.max(np.linalg.norm(own, axis=1)))
    assert found.heterogeneity == pytest.approx(L * np.sqrt(np.mean(np.sum((own - common) ** 2, axis=1))))
    assert found.noise == pytest.approx(np.sqrt(max(noise)))


def test_every_method_of_a_short_run_has_as_many_candidates() -> None:
    options = {name: candidates for name, (_, _, candidates) in regimes.candidates(2.0, 5, 4).items()}
    assert {name: len(candidates) for name, candidates in options.items()} == dict.fromkeys(options, 6)
    for candidates in options.values():
        tried = sorted({share for _, share in candidates})
        assert (tried[0], tried[-1]) == regimes.RANGE
        for method, share in candidates:
            assert isinstance(method, LocalSteps)
            own = method.alpha if isinstance(method, pf.algorithms.PLSGD) else 0.0
            assert method.lr == pytest.approx(share / 2.0 / (1 + own))


def test_what_a_candidate_reaches_is_measured_on_seeds_that_did_not_choose_it(least_squares, monkeypatch) -> None:
    seen: list[tuple[float, int]] = []

    def simulated(planned, **options):
        seen.extend((run.algorithm.lr, run.seed) for run in planned)
        return [SimpleNamespace(simulation=run, interrupted=False) for run in planned]

    def blocks(run):  # the smallest stepsize wins where it is chosen, and is bad elsewhere
        best = run.algorithm.lr == min(lr for lr, _ in seen)
        yield {"w": np.full((6, 3), (0.0 if run.seed < regimes.SEEDS else 7.0) if best else 2.0)}

    monkeypatch.setattr(regimes, "simulate_all", simulated)
    monkeypatch.setattr(regimes.PlannedRun, "personal_blocks", blocks, raising=False)
    options = regimes.candidates(1.0, 5, 4)["local SGD"][2]
    reached, share = regimes.shortest(least_squares(0.0), np.zeros((6, 3)), options, 5)
    assert (reached, share) == (3 * 49.0, regimes.RANGE[0])
    assert regimes.Way("global", "local SGD", None, reached, share).end == "smallest"
    assert regimes.Way("global", "local SGD", None, reached, 0.3).end is None
    assert {seed for _, seed in seen} == set(range(2 * regimes.SEEDS))


@pytest.mark.full
def test_a_regime_is_the_least_bound_and_the_nearest_run(least_squares) -> None:
    far = regime(least_squares(30.0), local_steps=5, rounds=30, batch=4, measure=True)
    assert (far.predicted, far.measured) == ("local", "local")
    near = {way.method: way for way in far.ways}
    assert near["PLSGD (16)"].bound is None
    assert far.constants["condition_number"] < far.window[0]
    runs = {name: way.measured or 0.0 for name, way in near.items()}
    assert near["local SGD"].ratio == pytest.approx(runs["local SGD"] / (near["local SGD"].bound or 0))
    assert 0 < runs["pure local training"] < 0.01 * runs["minibatch SGD"]
    assert far.by == "quadratics"


@pytest.mark.parametrize(("spread", "rounds"), [(0.0, 20), (0.4, 20), (30.0, 30)])
def test_out_of_the_window_the_regime_is_that_of_quadratics(least_squares, spread: float, rounds: int) -> None:
    """Constants by hand: the optima v_i, and the curvature on the way from zero to them."""
    problem = least_squares(spread)
    found = regime(problem, local_steps=5, rounds=rounds, batch=4)
    own, pulls = [], []
    for x, y in map(problem.federation.train.of, range(6)):
        own.append(np.linalg.solve(x.T @ x / 12 + 0.05 * np.eye(3), x.T @ y / 12))
        pulls.append(x.T @ y / 12)
    own, pulls = np.array(own), np.array(pulls)
    h, middle = np.sum(pulls * own) / np.sum(own**2), own.mean(axis=0)
    apart = float(np.mean(np.sum((own - middle) ** 2, axis=1)))
    noise = 0.0
    for (x, y), v in zip(map(problem.federation.train.of, range(6)), own, strict=True):
        rows = x * (x @ v - y)[:, None]
        noise += np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)) / 4 / 6
    exact = theory.plsgd_phase(theory.Clients(6, h, float(middle @ middle), apart, noise), 5, rounds)
    assert (found.by, found.predicted) == ("quadratics", exact.winner)
    assert found.quadratics["personalized"]["distance"] == pytest.approx(exact.personalized.error, rel=1e-6)
    assert found.quadratics[found.predicted]["distance"] <= min(
        found.quadratics["local"]["distance"], found.quadratics["global"]["distance"]
    )
    assert (found.predicted == "local") == (spread == 30.0)


@pytest.mark.full
def test_in_the_window_of_16_the_bounds_say_personalized() -> None:
    """Eigenvalues 1 and 1/100 and far optima: (16) and going alone have one bias, and (16) a quarter of the noise."""
    fed = pf.data.load("quadratics", clients=4, dim=2, spectra=[0.01, 1.0], zeta=500.0, rows=8, seed=1)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    found = regime(problem, local_steps=2, rounds=5, batch=10_000)
    assert found.window[0] <= found.constants["condition_number"] < found.window[1]
    assert (found.by, found.predicted) == ("bounds", "personalized")
    noisy = regime(problem, local_steps=2, rounds=5, batch=1)  # its least bound is a hundred times the start's distance
    assert noisy.by == "quadratics"
