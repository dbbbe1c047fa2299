"""The papers' convergence theorems, through the engine in float64: means over 200 seeds against the proved bounds.

A mean counts as under a bound if four standard errors more are still under it, and as above it if four less are still
above it. Solutions come from NumPy. Beside each theorem stands a run that violates its assumptions and breaks its
bound.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.algorithms import DCGD, DIANA, FLIX, Scafflix
from polyfed.algorithms.contract import Algorithm
from polyfed.engine.simulation import Simulation

pytestmark = pytest.mark.full
SEEDS, CLIENTS, DIM, BATCH = 200, 6, 5, 16
ALPHA = np.array([0.05, 0.1, 0.3, 0.6, 0.8, 1.0])
STEEP = np.array([10.0, 0.3, 3.0, 30.0, 1.0, 0.5])


class Solved:
    """A problem with its weights alpha_i, its constants, and its solution by Newton's method in NumPy."""

    def __init__(self, problem: pf.Problem, alpha: float | np.ndarray) -> None:
        self.problem, self.alpha = problem, np.broadcast_to(alpha, CLIENTS)
        self.own, self.star = np.zeros((CLIENTS, DIM)), np.zeros(DIM)
        spectra = np.linalg.eigvalsh(self.at(self.own)[2])  # the logistic curvature, too, is largest at the origin
        self.L = spectra[:, -1]
        self.mu = spectra[:, 0] if problem.loss.name == "squared" else np.full(CLIENTS, problem.l2)
        for _ in range(30):
            _, gradients, hessians = self.at(self.own)
            self.own = self.own - np.linalg.solve(hessians, gradients[..., None])[..., 0]
            _, gradients, hessians = self.at(self.deployed(self.star))
            self.star = self.star - np.linalg.solve(np.tensordot(self.alpha**2, hessians, 1), self.alpha @ gradients)
        self.goal = self.deployed(self.star)
        _, self.gradients, _ = self.at(self.goal)
        assert np.linalg.norm(self.alpha @ self.gradients) < 1e-12

    def deployed(self, x: np.ndarray) -> np.ndarray:
        """T_i(x) of every client; x is one model, or one for each."""
        return self.alpha[:, None] * x + (1 - self.alpha[:, None]) * self.own

    def at(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every f_i at the client's own row of `models`, with its gradient and Hessian."""
        values, gradients, hessians, l2 = [], [], [], self.problem.l2
        for client, w in enumerate(models):
            a, b = self.problem.federation.train.of(client)
            loss, first, second = (a @ w - b) ** 2 / 2, a @ w - b, np.ones(len(b))
            if self.problem.loss.name == "logistic":
                wrong = 1 / (1 + np.exp(b * (a @ w)))
                loss, first, second = -np.log1p(-wrong), -b * wrong, wrong * (1 - wrong)
            values.append(np.mean(loss) + l2 / 2 * w @ w)
            gradients.append(a.T @ first / len(a) + l2 * w)
            hessians.append((a.T * second) @ a / len(a) + l2 * np.eye(DIM))
        return np.array(values), np.array(gradients), np.array(hessians)

    def gap(self, run: Simulation) -> float:
        return float(np.mean(self.at(self.deployed(run.global_params["w"]))[0]) - np.mean(self.at(self.goal)[0]))

    def distance(self, run: Simulation) -> float:
        return float(np.sum((run.global_params["w"] - self.star) ** 2))

    def psi(self, x: np.ndarray, h: np.ndarray, method: Scafflix) -> float:
        """Scafflix's Lyapunov function with the stepsizes and the probability that `method` states."""
        lr, p = np.asarray(method.lr, float), float(method.p or 0)
        return float(theory.scafflix_lyapunov(self.deployed(x), self.goal, h, self.gradients, lr, p))


def quadratics(name: str, kappa: float = 20.0, rows: int = DIM) -> Solved:
    """Curvature L_i in one direction, L_i / kappa in all others; crossed: steep, and far out, along an axis each."""
    alpha, L = {"equal": (0.5, np.ones(CLIENTS)), "unequal": (ALPHA, STEEP), "crossed": (ALPHA, ALPHA**-2)}[name]
    axis = np.eye(DIM)[np.arange(CLIENTS) % DIM if name == "crossed" else np.zeros(CLIENTS, int)]
    options: dict[str, Any] = {"clients": CLIENTS, "dim": DIM, "rows": rows, "seed": 3, "zeta": 2.0, "center": 0.5}
    options |= {"rotate": False, "optima": 3 * axis} if name == "crossed" else {}
    fed = pf.data.load("quadratics", spectra=L[:, None] * np.where(axis == 1, 1, 1 / kappa), **options)
    return Solved(pf.Problem(fed, pf.models.linear(bias=False), "squared"), alpha)


@cache
def solved(name: str) -> Solved:
    """Quadratics, or logistic regression on features of unequal scale."""
    if name != "logistic":
        return quadratics(name)
    rng, clients = np.random.default_rng(0), []
    for scale in (0.5, 4.0, 1.0, 2.0, 0.7, 3.0):
        x = scale * rng.normal(size=(25, DIM))
        clients.append((x, np.where(x @ rng.normal(size=DIM) + scale * rng.normal(size=25) > 0, 1.0, -1.0)))
    fed = pf.Federation.from_arrays(clients, test=0, validation=0)
    return Solved(pf.Problem(fed, pf.models.linear(bias=False), "logistic", l2=0.1), ALPHA)


def started(case: Solved, method: Algorithm, x: np.ndarray, seed: int = 0) -> Simulation:
    with warnings.catch_warnings(action="ignore"):  # some stepsizes are too large on purpose
        simulation = Simulation(case.problem, method, dtype="float64", init={"w": x}, seed=seed, devices=1)
    simulation.prepare()
    return simulation


def reseed(simulation: Simulation, seed: int) -> None:
    """Another seed for the same simulation: making a new simulation for each would take most of the time."""
    placed = simulation.programs.everywhere(np.uint32(seed))
    simulation.programs.data = simulation.programs.data._replace(seed=placed)


def each_seed(simulation: Simulation) -> Iterator[int]:
    """The simulation from where it stands, under one seed after the other."""
    state, counters = simulation.state(), simulation.counters
    for seed in range(SEEDS):
        reseed(simulation, seed)
        simulation.restore(state, counters, 0.0)
        yield seed


def watch(simulation: Simulation, rounds: list[int], look: Callable[[Simulation], Any]) -> np.ndarray:
    """What `look` sees after each number of rounds, of every seed: (..., seeds, rounds)."""
    found = []
    for _ in each_seed(simulation):
        for count in np.diff(rounds, prepend=0):
            simulation.advance(int(count))
            found.append(look(simulation))
    return np.array(found).T.reshape(*np.shape(found[0]), SEEDS, len(rounds))


def mean(values: np.ndarray, errors: int) -> np.ndarray:
    """The mean over the seeds plus so many standard errors."""
    return values.mean(axis=0) + errors * values.std(axis=0, ddof=1) / np.sqrt(SEEDS)


def flix(case: Solved, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """f(x) - min f along gradient descent from the one-shot average, and the bound by V, which is never above (i)."""
    steps, lr = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256]), factor * theory.gd_stepsize(case.L, case.alpha)
    run = started(case, FLIX(alpha=case.alpha.tolist(), start="average", lr=lr), np.ones(DIM))
    variance, found = theory.spread(case.own, theory.one_shot_weights(case.L, case.alpha)).variance, []
    for count in np.diff(steps, prepend=-1):  # the average takes the first round
        run.advance(int(count))
        found.append(case.gap(run))
    return np.array(found), theory.gd_gap_bound(steps, case.L, case.mu, case.alpha, variance=variance)


@pytest.mark.parametrize("name", ["equal", "unequal", "crossed", "logistic"])
def test_flix_stays_under_theorem_2(name: str) -> None:
    gaps, bound = flix(solved(name))
    assert (gaps <= bound).all()
    assert bound[-1] < 1e-5 * bound[0]


def test_a_stepsize_three_times_too_large_breaks_theorem_2() -> None:
    gaps, bound = flix(solved("unequal"), factor=3.0)
    assert gaps[-1] > 1e3 * bound[0]


def compression(name: str) -> tuple[np.ndarray, dict[str, Any]]:
    """omega_i, and Rand-k with one k for all or one for each."""
    kept: Any = 2 if name == "equal" else [1, 2, 3, 5, 2, 1]
    return DIM / np.broadcast_to(kept, CLIENTS) - 1, {"name": "rand_k", "k": kept}


@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_dcgd_stays_under_theorem_4(name: str) -> None:
    case, (omega, rand_k), rounds = solved(name), compression(name), [1, 3, 10, 30, 100, 300]
    step = theory.dcgd_stepsize(case.L, case.alpha, omega)
    run = started(case, DCGD(alpha=case.alpha.tolist(), compressor=rand_k, lr=step), np.full(DIM, 6.0))
    bound = theory.dcgd_distance_bound(rounds, case.distance(run), case.gradients, case.mu, case.alpha, omega, step)
    assert (mean(watch(run, rounds, case.distance), 4) <= bound).all()
    assert bound[-1] < 0.05 * bound[0]


def test_one_coordinate_where_four_are_stated_breaks_theorem_4() -> None:
    case, omega = solved("equal"), DIM / 4 - 1
    step = theory.dcgd_stepsize(case.L, case.alpha, omega)
    run = started(case, DCGD(alpha=0.5, compressor={"name": "rand_k", "k": 1}, lr=step), case.star)
    bound = theory.dcgd_distance_bound([300], 0.0, case.gradients, case.mu, case.alpha, omega, step)
    assert (mean(watch(run, [300], case.distance), -4) > bound).all()


@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_diana_stays_under_theorem_5_where_dcgd_does_not(name: str) -> None:
    case, (omega, rand_k), rounds = solved(name), compression(name), [1, 3, 10, 30, 100, 300]
    beta = theory.diana_beta(omega)
    step = theory.diana_stepsize(case.L, case.alpha, omega, beta)

    def lyapunov(run: Simulation) -> float:
        x, h = run.global_params["w"], run.client_state.memory["w"]
        return float(theory.diana_lyapunov(x, case.star, h, case.gradients, case.alpha, omega, step, beta))

    own = None if name == "equal" else beta.tolist()
    run = started(case, DIANA(alpha=case.alpha.tolist(), compressor=rand_k, lr=step, beta=own), np.ones(DIM))
    bound = theory.diana_bound(rounds, lyapunov(run), case.mu, case.alpha, omega, step, beta)
    assert (mean(watch(run, rounds, lyapunov), 4) <= bound).all()
    assert bound[-1] < 0.01 * bound[0]
    forgetful = started(case, DCGD(alpha=case.alpha.tolist(), compressor=rand_k, lr=step), np.ones(DIM))
    assert (mean(watch(forgetful, [300], case.distance), -4) > bound[-1]).all()


def scafflix(case: Solved, A: np.ndarray, **options: Any) -> tuple[Scafflix, np.ndarray, float]:
    """The method with the stepsizes 1 / A_i and the probability of Corollary 2; these stepsizes and probability."""
    steps = theory.scafflix_stepsizes(A, case.mu)
    p = theory.scafflix_probability(steps, case.mu)
    return Scafflix(alpha=case.alpha.tolist(), lr=steps.tolist(), p=p, **options), steps, p


def scaled_psi(case: Solved, method: Scafflix, rounds: list[int], stated: Scafflix, rate: float) -> np.ndarray:
    """(1 - zeta)^-t Psi^t / Psi^0 from x* on, after each number of rounds; t is the iterations that they took.

    It is a supermartingale (eq. 18 with C = 0) and never negative, so that its mean is at most 1 at the stopping times
    t = T_r, too, at which rounds end. E Psi <= E (1 - zeta)^T_r Psi^0 need not follow: Psi and T_r are not independent.
    """

    def look(run: Simulation) -> tuple[float, int]:
        return case.psi(run.global_params["w"], run.client_state.control["w"], stated), run.iterations

    run = started(case, method, case.star)
    start, _ = look(run)
    psi, iterations = watch(run, rounds, look)
    assert np.mean((1 - rate) ** iterations[:, -1]) < 1e-2
    return psi / start / (1 - rate) ** iterations


@pytest.mark.parametrize("name", ["equal", "unequal", "logistic"])
def test_scafflix_stays_under_theorem_1_after_every_round(name: str) -> None:
    case = solved(name)
    method, steps, p = scafflix(case, case.L)
    found = scaled_psi(case, method, [1, 2, 4, 16, 64], method, theory.scafflix_rate(steps, case.mu, p))
    assert (mean(found, 4) <= 1).all()
    assert found.max() > 1  # of the single seeds, it would not be true


@pytest.mark.parametrize("fault", ["stepsizes", "coin", "controls"])
def test_a_broken_scafflix_breaks_theorem_1(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stepsizes of 3 / L_i, a coin that says yes half as often as stated, control variates that never move."""
    case = quadratics("unequal") if fault == "controls" else solved("unequal")
    method, steps, p = scafflix(case, case.L)
    changes = {"stepsizes": {"lr": (3 * steps).tolist()}, "coin": {"p": p / 2}, "controls": {}}[fault]
    if fault == "controls":
        monkeypatch.setattr(Scafflix, "absorb", lambda self, pending, sent, f: pending.state)
    rate, broken = theory.scafflix_rate(steps, case.mu, p), dataclasses.replace(method, **changes)
    found = np.minimum(scaled_psi(case, broken, [2, 32], method, rate), 100)  # lowers the mean, but not to nothing
    assert (mean(found, -4) > 1).any()


def cut_short(cut: Any, state: Any, counters: dict[str, int], t: int) -> tuple[np.ndarray, np.ndarray]:
    """The clients' models and control variates at iteration t, within the round that starts from `state`."""
    cut.restore(state, counters, 0.0)
    cut.programs.method = dataclasses.replace(cut.programs.method, p=1 / np.float64(t - counters["iterations"]))
    cut.programs.__dict__.pop("placed_method", None)  # of the probability before
    cut.advance(1)
    (clients,) = state.rows
    return sent_last(cut, clients.control["w"]), clients.control["w"]


def sent_last(run: Any, before: np.ndarray) -> np.ndarray:
    """The clients' models at the end of a round, x - gamma_i / (p alpha_i) (h_i^new - h_i): line 13 the other way."""
    method: Any = run.programs.method
    gamma, alpha = (np.broadcast_to(value, CLIENTS)[:, None] for value in (method.lr, method.alpha))
    return run.global_params["w"] - gamma / (method.p * alpha) * (run.client_state.control["w"] - before)


def psi_at(case: Solved, method: Scafflix, times: list[int], start: np.ndarray, stated: Scafflix) -> np.ndarray:
    """Psi^t at the iterations t themselves, of every seed: a round that goes on beyond t is run again up to t."""
    run, cut = (started(case, dataclasses.replace(method, steps=steps), start) for steps in ("random", "fixed"))
    before, counters, found = run.state(), run.counters, []
    for seed in each_seed(run):
        reseed(cut, seed)
        for t in times:
            while run.iterations < t:
                before, counters = run.state(), run.counters
                run.advance(1)
            now = run.global_params["w"], run.client_state.control["w"]
            found.append(case.psi(*(now if run.iterations == t else cut_short(cut, before, counters, t)), stated))
    return np.reshape(found, (SEEDS, len(times)))


@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_scafflix_with_batches_stays_under_theorem_1_at_every_iteration(name: str) -> None:
    case, times, constants = quadratics(name, kappa=2.0, rows=20), [2, 8, 25], []
    for (a, b), w in zip(map(case.problem.federation.train.of, range(CLIENTS)), case.goal, strict=True):
        constants.append(theory.expected_smoothness(np.sum(a**2, axis=1), a * (a @ w - b)[:, None], BATCH))
    (A, C), start = np.transpose(constants), case.star + 3
    method, steps, p = scafflix(case, A, batch=BATCH, replace=True)
    psi = case.psi(start, np.zeros((CLIENTS, DIM)), method)
    bound = theory.scafflix_bound(times, psi, steps, case.mu, p, C)
    assert (mean(psi_at(case, method, times, start, method), 4) <= bound).all()
    assert bound[-1] < 0.1 * bound[0]
    if name == "equal":  # single rows are 16 times as noisy as stated
        noisier = psi_at(case, dataclasses.replace(method, batch=1), times[-1:], start, method)
        assert (mean(noisier, -4) > bound[-1]).all()


def test_runs_with_another_seed_or_cut_short_are_those_of_a_plain_simulation() -> None:
    case, x = quadratics("unequal", kappa=2.0, rows=20), np.ones(DIM)
    method, _, _ = scafflix(case, 9 * case.L, batch=BATCH, replace=True)
    plain, run = started(case, method, x, seed=7), started(case, method, x)
    plain.advance(3)
    reseed(run, 7)
    run.advance(2)
    state, counters = run.state(), run.counters
    (before,) = state.rows
    run.advance(1)
    np.testing.assert_array_equal(plain.global_params["w"], run.global_params["w"])
    cut = started(case, dataclasses.replace(method, steps="fixed"), x, seed=7)
    found = cut_short(cut, state, counters, run.iterations)[0]
    np.testing.assert_allclose(found, sent_last(run, before.control["w"]), rtol=1e-12, atol=1e-12)
