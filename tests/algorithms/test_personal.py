"""Per-FedAvg, FOMAML, Reptile, pFedMe, q-FedAvg, L2GD, Ditto and minibatch SGD: NumPy loops, reductions, refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.l2gd import run_length
from polyfed.engine.simulation import Simulation
from tests.algorithms import reference
from tests.algorithms import reference_personal as personal
from tests.algorithms.test_apfl import INIT, SEED, START, cohort, matrix, simulate

A = pf.algorithms
ROUNDS, STEPS = 3, 4
WORK = {"lr": 0.3, "local_steps": STEPS}
BATCHES = [("full", None), (4, 4)]


def run(problem, method, **options):
    return simulate(problem, method, rounds=ROUNDS, eval_every=ROUNDS, **options)


@pytest.mark.parametrize(
    ("variant", "batch", "rows"),
    [("first-order", "full", None), *((v, *rows) for v in ("hessian-free", "exact") for rows in BATCHES)],
)
def test_perfedavg_is_fallahs_algorithm(problem, variant, batch, rows) -> None:
    method = A.PerFedAvg(**WORK, batch=batch, variant=variant, inner_lr=0.2, delta=0.01)
    found = matrix(run(problem, method).global_params)
    with jax.enable_x64(True):
        expected = personal.perfedavg(problem, ROUNDS, 0.3, 0.2, STEPS, rows, variant, 0.01, SEED, START)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_variants_differ_by_the_hessian(problem) -> None:
    """HF and exact agree to the order of delta^2; FO is off by the inner step times the curvature."""
    first, free, exact = (
        matrix(run(problem, A.PerFedAvg(**WORK, batch="full", variant=variant, inner_lr=0.2)).global_params)
        for variant in ("first-order", "hessian-free", "exact")
    )
    assert np.abs(free - exact).max() < 1e-6
    assert np.abs(first - exact).max() > 1e-3


@pytest.mark.parametrize("variant", ["first-order", "hessian-free", "exact"])
def test_perfedavg_without_adaptation_is_fedavg(problem, variant) -> None:
    meta = run(problem, A.PerFedAvg(**WORK, batch=4, variant=variant, inner_lr=0.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(meta.global_params), matrix(average.global_params), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_fomaml_sends_the_gradient_after_adaptation(problem, batch, rows) -> None:
    found = run(problem, A.FOMAML(lr=0.5, inner_lr=0.2, inner_steps=2, batch=batch)).global_params
    expected = personal.fomaml(problem, ROUNDS, 0.5, 0.2, 2, rows, SEED, START)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


def test_fomaml_without_adaptation_is_gradient_descent(problem) -> None:
    meta = run(problem, A.FOMAML(lr=0.5, inner_lr=0.0, batch="full"))
    descent = run(problem, A.FLIX(alpha=1.0, lr=0.5))
    np.testing.assert_allclose(matrix(meta.global_params), matrix(descent.global_params), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_reptile_goes_part_of_the_way(problem, batch, rows) -> None:
    found = run(problem, A.Reptile(**WORK, batch=batch, server_lr=0.4)).global_params
    np.testing.assert_allclose(
        matrix(found), personal.reptile(problem, ROUNDS, 0.3, 0.4, STEPS, rows, SEED, START), atol=1e-10
    )


def test_reptile_all_the_way_is_fedavg(problem) -> None:
    meta = run(problem, A.Reptile(**WORK, batch=4, server_lr=1.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(meta.global_params), matrix(average.global_params), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows", "participation"), [("full", None, 1.0), (4, 4, 3)])
def test_pfedme_is_dinhs_algorithm(problem, batch, rows, participation) -> None:
    method = A.PFedMe(lr=0.1, local_steps=STEPS, batch=batch, penalty=5.0, inner_steps=3, inner_lr=0.08, beta=0.7)
    result = run(problem, method, participation=participation)
    members = cohort(participation, problem)
    w, thetas = personal.pfedme(problem, ROUNDS, 0.1, 0.08, 5.0, 3, STEPS, rows, 0.7, members, SEED, START)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-10)
    for i, theta in enumerate(thetas):
        np.testing.assert_allclose(matrix(result.personal(i)), theta, atol=1e-10)


def test_pfedme_minimises_the_mean_of_the_moreau_envelopes() -> None:
    """On quadratics all is known: theta_i = (H_i + lambda)^-1 (m_i + lambda w), and w solves mean(w - theta_i) = 0."""
    fed = pf.data.load("quadratics", clients=4, dim=3, mu=0.1, L=1.0, zeta=2.0, seed=3)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    rows = [fed.train.of(i) for i in range(4)]
    inverses = [np.linalg.inv(x.T @ x / len(x) + 2.0 * np.eye(3)) for x, _ in rows]
    moments = [x.T @ y / len(x) for x, y in rows]
    w = np.linalg.solve(4 * np.eye(3) - 2.0 * sum(inverses), sum(h @ m for h, m in zip(inverses, moments, strict=True)))
    method = A.PFedMe(lr=0.5, penalty=2.0, inner_lr=0.3, inner_steps=60, local_steps=1, batch="full")
    result = pf.simulate(problem, method, rounds=300, eval_every=300, dtype="float64")
    np.testing.assert_allclose(result.global_params["w"], w, atol=1e-9)
    for i in range(4):
        np.testing.assert_allclose(result.personal(i)["w"], inverses[i] @ (moments[i] + 2.0 * w), atol=1e-9)


@pytest.mark.parametrize("q", [0.5, 2.0])
@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_qfedavg_is_lis_algorithm(problem, q, batch, rows) -> None:
    found = run(problem, A.QFedAvg(**WORK, batch=batch, q=q)).global_params
    expected = personal.qfedavg(problem, ROUNDS, 0.3, q, STEPS, rows, None, SEED, START)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


@pytest.mark.parametrize("smoothness", [None, 7.0])
def test_qfedavg_with_q_0_is_fedavg_with_uniform_weights(problem, smoothness) -> None:
    fair = run(problem, A.QFedAvg(**WORK, batch=4, q=0.0, smoothness=smoothness), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4, weighting="uniform"), participation=3)
    np.testing.assert_allclose(matrix(fair.global_params), matrix(average.global_params), atol=1e-10)
    assert fair.simulation.bits_up == average.simulation.bits_up * 16 / 15


def test_losses_whose_powers_vanish_leave_the_model_where_it_is() -> None:
    """Targets that the start fits exactly: every loss is zero, and so are all powers of it in float32."""
    fed = pf.Federation.from_arrays([(np.ones((4, 2)), np.zeros(4))] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared")
    result = pf.simulate(problem, A.QFedAvg(q=8.0), rounds=2)
    np.testing.assert_array_equal(result.global_params["w"], 0)


def test_a_large_q_evens_the_losses_out(problem) -> None:
    def spread(q: float) -> float:
        method = A.QFedAvg(lr=0.1, local_steps=5, batch="full", q=q)
        rows = pf.simulate(problem, method, rounds=300, eval_every=300, dtype="float64").evaluate("train")
        return float(rows["global_loss"].std())

    assert spread(5.0) < spread(1.0) < spread(0.0)


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
        x, mean = personal.l2gd(problem, coins, n * (1 - p) * lr, penalty, p, START)
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
    assert method.p == pytest.approx(0.5 / (0.5 + L))
    assert method.lr == pytest.approx(1 / (2 * L))
    with pytest.warns(UserWarning, match=r"lr = 5 is above \d.*, the largest that the convergence theorem allows"):
        Simulation(problem, A.L2GD(lr=5.0))


@pytest.mark.parametrize(("batch", "rows", "participation"), [("full", None, 1.0), (4, 4, 3)])
def test_ditto_is_lis_algorithm(problem, batch, rows, participation) -> None:
    method = A.Ditto(**WORK, batch=batch, penalty=0.7, personal_lr=0.2, personal_steps=2)
    result = run(problem, method, participation=participation)
    members = cohort(participation, problem)
    w, own = personal.ditto(problem, ROUNDS, 0.3, 0.2, 0.7, STEPS, 2, rows, members, SEED, START)
    np.testing.assert_allclose(matrix(result.global_params), w, atol=1e-10)
    for i, v in enumerate(own):
        np.testing.assert_allclose(matrix(result.personal(i)), v, atol=1e-10)


def test_ditto_is_fedavg_beside_training_alone_where_nothing_pulls(problem) -> None:
    result = run(problem, A.Ditto(**WORK, batch=4, penalty=0.0), participation=3)
    average = run(problem, A.FedAvg(**WORK, batch=4), participation=3)
    alone = run(problem, A.Local(**WORK, batch=4), participation=3)
    np.testing.assert_allclose(matrix(result.global_params), matrix(average.global_params), atol=1e-10)
    for i in range(len(problem)):
        np.testing.assert_allclose(matrix(result.personal(i)), matrix(alone.personal(i)), atol=1e-10)


@pytest.mark.parametrize(("batch", "rows"), BATCHES)
def test_minibatch_sgd_takes_all_gradients_at_one_point(problem, batch, rows) -> None:
    found = run(problem, A.MinibatchSGD(**WORK, batch=batch)).global_params
    expected = personal.minibatch(problem, ROUNDS, 0.3, STEPS, rows, SEED, START)
    np.testing.assert_allclose(matrix(found), expected, atol=1e-10)


def test_minibatch_sgd_with_one_batch_is_fedavg_with_one_step(problem) -> None:
    one = {"lr": 0.3, "local_steps": 1, "batch": 4, "weighting": "size"}
    large = run(problem, A.MinibatchSGD(**one), participation=3)
    average = run(problem, A.FedAvg(**one), participation=3)
    np.testing.assert_allclose(matrix(large.global_params), matrix(average.global_params), atol=1e-10)


def test_minibatch_sgd_with_full_batches_is_gradient_descent(problem) -> None:
    w = START
    for _ in range(ROUNDS):
        w = w - 0.3 * np.mean([f.grad(w) for f in reference.clients_of(problem)], axis=0)
    found = run(problem, A.MinibatchSGD(**WORK, batch="full")).global_params
    np.testing.assert_allclose(matrix(found), w, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.PerFedAvg(variant="second"), "perfedavg: variant must be one of first-order, hessian-free, exact"),
        (A.PerFedAvg(inner_lr=-0.1), "perfedavg: inner_lr must be at least 0"),
        (A.PerFedAvg(adapt_steps=0), "perfedavg: adapt_steps must be a whole number, at least 1"),
        (A.FOMAML(inner_steps=0), "fomaml: inner_steps must be a whole number, at least 1"),
        (A.FOMAML(batch="all"), "fomaml: batch must be a whole number, at least 1, or 'full'"),
        (A.Reptile(server_lr=0.0), "reptile: server_lr must be above 0"),
        (A.PFedMe(penalty=0.0), "pfedme: penalty must be above 0"),
        (A.PFedMe(beta=-1.0), "pfedme: beta must be above 0"),
        (A.QFedAvg(q=-1.0), "qfedavg: q must be at least 0"),
        (A.L2GD(p=1.0), "l2gd: p must be above 0 and at most"),
        (A.L2GD(penalty=-1.0), "l2gd: penalty must be at least 0"),
        (A.Ditto(penalty=float("nan")), "ditto: penalty must be at least 0"),
        (A.Ditto(personal_steps=0), "ditto: personal_steps must be a whole number, at least 1"),
        (A.MinibatchSGD(lr=0.0), "minibatchsgd: lr must be above 0"),
    ],
    ids=lambda value: value.name if isinstance(value, A.Algorithm) else None,
)
def test_bad_input_is_refused_by_name(problem, method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, method)


def test_a_net_needs_the_stepsize_and_probability_of_l2gd(federation) -> None:
    problem = pf.Problem(federation, pf.models.mlp([4]), "softmax")
    with pytest.raises(pf.PolyfedError, match="l2gd: p must be given: the theory's value needs a linear model"):
        Simulation(problem, A.L2GD(lr=0.1))
