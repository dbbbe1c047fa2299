"""L2GD: a NumPy loop, the solution on quadratics, its stepsize and probability, refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.l2gd import run_length
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import INIT, SEED, START, matrix, trained
from tests.algorithms.references import baselines

pytestmark = pytest.mark.full
A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return trained(problem, method, ROUNDS, **options)


def test_l2gd_is_hanzelys_algorithm_coin_by_coin(problem) -> None:
    """Run after run of the shared coin, in the parameters of the paper: alpha = n (1 - p) lr."""
    n, p, penalty, lr = len(problem), 0.4, 0.8, 0.2
    simulation = Simulation(problem, A.L2GD(penalty=penalty, p=p, lr=lr), dtype="float64", init=INIT, seed=SEED)
    coins: list[int] = []
    for round in range(6):
        before = simulation.iterations
        with jax.enable_x64(True):
            shared = simulation.programs.round.objective(simulation.programs.data, jnp.int32(0), round).shared_key
            ones = int(run_length(jax.random.split(shared)[1], jnp.float32(1 - p)))
        simulation.advance(1)
        coins += [0] * (simulation.iterations - before) + [1] * ones
        x, mean = baselines.l2gd(problem, coins, n * (1 - p) * lr, penalty, p, start=START)
        np.testing.assert_allclose(matrix(simulation.global_params), mean, atol=1e-10)
        for i in range(n):
            np.testing.assert_allclose(matrix(simulation.personal(i)), x[i], atol=1e-10)
    assert len(set(np.diff(np.flatnonzero(np.diff(coins))))) > 1  # runs of different lengths were drawn


def test_the_coin_of_l2gd_is_fair_to_its_probability() -> None:
    keys = jax.random.split(jax.random.key(3), 4000)
    for p in (0.1, 0.5, 0.9):
        lengths = np.asarray(jax.vmap(lambda key, p=p: run_length(key, jnp.float32(p)))(keys))
        assert lengths.min() == 1
        assert lengths.mean() == pytest.approx(1 / p, rel=0.06)


def test_l2gd_without_penalty_is_training_alone_and_with_theory_comes_near_the_optimum() -> None:
    fed = pf.data.load("quadratics", clients=4, dim=3, mu=0.1, L=1.0, zeta=2.0, seed=3)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    rows = [fed.train.of(i) for i in range(4)]
    hessians, moments = [x.T @ x / len(x) for x, _ in rows], [x.T @ y / len(x) for x, y in rows]
    alone = pf.simulate(problem, A.L2GD(penalty=0.0, p=0.3, lr=0.5), rounds=200, eval_every=200, dtype="float64")
    for i in range(4):
        np.testing.assert_allclose(alone.personal(i)["w"], np.linalg.solve(hessians[i], moments[i]), atol=1e-8)
    # The optimum: H_i x_i - m_i + lambda (x_i - mean) = 0 for all i, one linear system.
    system = np.zeros((12, 12))
    for i in range(4):
        system[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] += hessians[i] + 0.5 * np.eye(3)
        for j in range(4):
            system[3 * i : 3 * i + 3, 3 * j : 3 * j + 3] -= 0.5 / 4 * np.eye(3)
    expected = np.linalg.solve(system, np.concatenate(moments)).reshape(4, 3)
    near, far = (
        pf.simulate(problem, A.L2GD(penalty=0.5, p=0.5, lr=lr), rounds=3000, eval_every=3000, dtype="float64")
        for lr in (0.01, 0.4)
    )
    errors = [max(np.abs(r.personal(i)["w"] - expected[i]).max() for i in range(4)) for r in (near, far)]
    assert errors[0] < 0.02
    assert errors[1] > 0.1  # a neighbourhood that grows with the stepsize


def test_l2gd_takes_stepsize_and_probability_from_the_theory(problem) -> None:
    L = problem.constants.smoothness.max()
    method = Simulation(problem, A.L2GD(penalty=0.5)).method
    assert isinstance(method, A.L2GD)
    assert method.p == pytest.approx(0.5 / (0.5 + L))
    assert method.lr == pytest.approx(1 / (2 * L))
    with pytest.warns(UserWarning, match=r"lr = 5 is above \d.*, the largest that the convergence theorem allows"):
        Simulation(problem, A.L2GD(lr=5.0))


def test_a_net_needs_the_stepsize_and_probability_of_l2gd(federation) -> None:
    problem = pf.Problem(federation, pf.models.mlp([4]), "softmax")
    with pytest.raises(pf.PolyfedError, match="l2gd: p must be given: the theory's value needs a linear model"):
        Simulation(problem, A.L2GD(lr=0.1))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("l2gd", {"p": 1.0}, "l2gd: p must be above 0 and at most"),
        ("l2gd", {"penalty": -1.0}, "l2gd: penalty must be at least 0"),
    ],
)
def test_bad_input_is_refused_by_name(problem, name, options, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, A.REGISTRY[name](**options))
