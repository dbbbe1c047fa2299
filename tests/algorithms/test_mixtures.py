"""FLIX, DCGD, DIANA, Scaffnew and Scafflix on convex problems: NumPy loops, reductions, and the solution they share."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.simulation import Simulation
from polyfed.problem import objective

A = pf.algorithms
ALPHA = np.array([0.9, 0.2, 0.55, 1.0, 0.35])
SIZES = (9, 30, 14, 21, 6)


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    """Logistic regression on five clients of unequal size, scale and rule."""
    rng = np.random.default_rng(3)
    clients = []
    for scale, size in zip((0.5, 2.0, 1.0, 1.5, 0.8), SIZES, strict=True):
        x = scale * rng.normal(size=(size, 3))
        clients.append((x, np.where(x @ rng.normal(size=3) + 0.3 * rng.normal(size=size) > 0, 1.0, -1.0)))
    fed = pf.Federation.from_arrays(clients, test=0, validation=0, columns={"trust": ALPHA})
    return pf.Problem(fed, pf.models.linear(bias=False), "logistic", l2=0.1)


def grads(problem: pf.Problem, points: np.ndarray) -> np.ndarray:
    """grad f_i(points_i) of every client, in NumPy."""
    found = []
    for i, w in enumerate(points):
        a, b = problem.federation.train.of(i)
        found.append(-(a * (b / (1 + np.exp(b * (a @ w))))[:, None]).mean(axis=0) + problem.l2 * w)
    return np.array(found)


def local_models(problem: pf.Problem) -> np.ndarray:
    """Plain gradient descent of every client, far beyond the precision that is asked for."""
    x = np.zeros((len(problem), 3))
    for _ in range(6000):
        x = x - 0.2 * grads(problem, x)
    return x


def run(problem: pf.Problem, method, rounds: int, **options):
    return pf.simulate(problem, method, rounds=rounds, dtype="float64", eval_every=rounds, init="ones", **options)


def test_local_models_are_the_clients_own_minimisers(problem) -> None:
    expected = local_models(problem)
    np.testing.assert_allclose(problem.local_models().params["w"], expected, atol=1e-11)
    state = run(problem, A.FLIX(alpha=ALPHA), 1).client_state
    np.testing.assert_allclose(state.own["w"], expected, atol=1e-11)
    assert (state.grad_norm <= 1e-12).all()
    np.testing.assert_array_equal(state.alpha, ALPHA)


def test_the_constants_bound_the_hessians(problem) -> None:
    """At the origin the logistic curvature is largest, 1/4: there the bound on the smoothness is attained."""
    for client, name in enumerate(problem.federation.clients):
        with jax.enable_x64(True):
            f = problem.objective(name, "train")
            at_zero = np.linalg.eigvalsh(jax.hessian(lambda w, f=f: f.value({"w": w}))(jnp.zeros(3)))
            elsewhere = np.linalg.eigvalsh(jax.hessian(lambda w, f=f: f.value({"w": w}))(jnp.ones(3)))
        constants = problem.constants
        assert constants.smoothness[client] == pytest.approx(at_zero[-1], rel=1e-12)
        assert constants.convexity[client] <= elsewhere[0] + 1e-12
        assert elsewhere[-1] <= constants.smoothness[client] <= constants.trace_bound[client]


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_the_constants_of_the_other_losses_bound_their_hessians(loss) -> None:
    rng = np.random.default_rng(1)
    targets = rng.integers(0, 3, 12) if loss == "softmax" else rng.normal(size=12)
    fed = pf.Federation.from_arrays([(rng.normal(size=(12, 2)), targets)] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(), loss, l2=0.05)
    with jax.enable_x64(True):
        f = problem.objective(fed.clients[0], "train")
        params, unravel = jax.flatten_util.ravel_pytree(problem.init("zeros"))
        for point in (params, params + 0.7):
            values = np.linalg.eigvalsh(jax.hessian(lambda w: f.value(unravel(w)))(point))
            assert values[-1] <= problem.constants.smoothness[0] + 1e-12 <= problem.constants.trace_bound[0] + 1e-11
            assert problem.constants.convexity[0] <= values[0] + 1e-12
            if loss == "squared":
                assert values[-1] == pytest.approx(problem.constants.smoothness[0], rel=1e-12)
                assert values[0] == pytest.approx(problem.constants.convexity[0], rel=1e-10)


def test_flix_is_distributed_gradient_descent_on_the_mixture(problem) -> None:
    own, x = local_models(problem), np.ones(3)
    gamma = 1 / np.mean(ALPHA**2 * problem.constants.smoothness)
    for _ in range(7):
        x = x - gamma * np.mean(
            ALPHA[:, None] * grads(problem, ALPHA[:, None] * x + (1 - ALPHA[:, None]) * own), axis=0
        )
    result = run(problem, A.FLIX(alpha=ALPHA), 7)
    np.testing.assert_allclose(result.global_params["w"], x, atol=1e-11)
    np.testing.assert_allclose(result.personal(1)["w"], 0.2 * x + 0.8 * own[1], atol=1e-11)
    np.testing.assert_allclose(result.simulation.own_share, 1 - ALPHA)


@pytest.mark.parametrize("lr", [None, 0.7])
def test_flix_with_local_steps_averages_walks_on_the_mixture(problem, lr) -> None:
    own, x, eta = local_models(problem), np.ones(3), 0.05
    for _ in range(4):
        y = np.tile(x, (len(problem), 1))
        for _ in range(3):
            y = y - eta * ALPHA[:, None] * grads(problem, ALPHA[:, None] * y + (1 - ALPHA[:, None]) * own)
        x = x - (1.0 if lr is None else lr) * (x - y.mean(axis=0))
    method = A.FLIX(alpha=ALPHA, lr=lr, local_steps=3, local_lr=eta)
    np.testing.assert_allclose(run(problem, method, 4).global_params["w"], x, atol=1e-11)


@pytest.mark.parametrize(
    "options", [{"local_steps": 3}, {"local_lr": 0.1}, {"local_steps": 3, "local_lr": 0.1, "start": "average"}]
)
def test_local_steps_and_their_stepsize_go_together(options) -> None:
    with pytest.raises(pf.PolyfedError, match="local"):
        A.FLIX(**options).check()


def test_scafflix_is_algorithm_1(problem) -> None:
    """The iteration of the paper, coin by coin, with the number of local steps of each round as the run drew it."""
    own, n = local_models(problem), len(problem)
    gamma, p = 1 / problem.constants.smoothness, 0.3
    simulation = Simulation(problem, A.Scafflix(alpha=ALPHA, p=p), dtype="float64", init="ones", seed=4)
    simulation.prepare()
    x, h = np.ones(3), np.zeros((n, 3))
    weight = ALPHA**2 / gamma
    for _ in range(6):
        before = simulation.iterations
        simulation.advance(1)
        y = np.tile(x, (n, 1))
        for _ in range(simulation.iterations - before):
            g = grads(problem, ALPHA[:, None] * y + (1 - ALPHA[:, None]) * own)
            y = y - (gamma / ALPHA)[:, None] * (g - h)
        x = weight @ y / weight.sum()
        h = h + (p * ALPHA / gamma)[:, None] * (x - y)
        np.testing.assert_allclose(simulation.global_params["w"], x, atol=1e-10)
        np.testing.assert_allclose(simulation.client_state.control["w"], h, atol=1e-9)
        np.testing.assert_allclose(ALPHA @ simulation.client_state.control["w"], 0, atol=1e-10)


def test_diana_is_algorithm_3_with_the_compressors_own_draws(problem) -> None:
    """The memories and the server's memory stay consistent, and x moves along h + mean difference."""
    method = A.DIANA(alpha=ALPHA, compressor={"name": "rand_k", "k": 1})
    simulation = Simulation(problem, method, dtype="float64", init="ones", seed=2)
    simulation.prepare()
    own = simulation.client_state.mixture.own["w"]
    gamma, beta = simulation.method.lr, simulation.method.beta
    assert beta == pytest.approx(1 / 3)
    for _ in range(5):
        x, h = simulation.global_params["w"], simulation.client_state.memory["w"]
        simulation.advance(1)
        after = simulation.client_state.memory["w"]
        g = ALPHA[:, None] * grads(problem, ALPHA[:, None] * x + (1 - ALPHA[:, None]) * own)
        sent = (after - h) / beta  # the decompressed differences: one coordinate of g - h each, times 3
        chosen = np.abs(sent) > 1e-14
        assert (chosen.sum(axis=1) <= 1).all()
        np.testing.assert_allclose(sent[chosen], 3 * (g - h)[chosen], atol=1e-12)
        moved = x - gamma * (h.mean(axis=0) + sent.mean(axis=0))
        np.testing.assert_allclose(simulation.global_params["w"], moved, atol=1e-12)
        np.testing.assert_allclose(simulation.server.memory["w"], after.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A.FLIX(alpha=1.0), A.DCGD(alpha=1.0)),
        (A.FLIX(alpha=ALPHA), A.DCGD(alpha=ALPHA)),
        (A.FLIX(alpha=ALPHA), A.DIANA(alpha=ALPHA)),
        (A.FLIX(alpha=ALPHA), A.DIANA(alpha=ALPHA, memory="gradient")),
        (A.FLIX(alpha=ALPHA), A.DCGD(alpha=ALPHA, compressor={"name": "rand_k", "k": 3})),
        (A.Scafflix(alpha=1.0, p=0.3), A.Scaffnew(p=0.3)),
        (A.Scafflix(alpha=1.0, p=0.3, lr=0.2), A.Scaffnew(p=0.3, lr=0.2)),
        (A.Scaffnew(p=0.3, lr=[0.2] * 5), A.Scaffnew(p=0.3, lr=0.2)),
        (A.Scaffnew(p=1.0, lr=0.2), A.FLIX(alpha=1.0, lr=0.2)),
        (A.FLIX(alpha=1.0, lr=0.2), A.FedAvg(lr=0.2, local_steps=1, batch="full", weighting="uniform")),
    ],
    ids=lambda method: method.name,
)
def test_reductions_hold_exactly(problem, one, other) -> None:
    first, second = run(problem, one, 12, seed=3), run(problem, other, 12, seed=3)
    np.testing.assert_allclose(first.global_params["w"], second.global_params["w"], atol=1e-10)


def test_scafflix_with_p_1_keeps_the_gradient_deviations(problem) -> None:
    """p = 1, alpha = 1, equal stepsizes: the averaged iterate is gradient descent's, and h_i = grad_i - mean grad."""
    result = run(problem, A.Scafflix(alpha=1.0, p=1.0, lr=0.2), 1)
    g = grads(problem, np.ones((5, 3)))
    np.testing.assert_allclose(result.client_state.control["w"], g - g.mean(axis=0), atol=1e-12)


def test_alpha_0_is_purely_local_and_sends_nothing(problem) -> None:
    own = local_models(problem)
    for method in (A.FLIX(alpha=0.0), A.Scafflix(alpha=0.0, p=0.5), A.DIANA(alpha=0.0), A.DCGD(alpha=0.0)):
        result = run(problem, method, 5)
        assert result.simulation.bits_up == result.simulation.bits_down == 0
        for client in range(5):
            np.testing.assert_allclose(result.personal(client)["w"], own[client], atol=1e-11)


def test_a_client_with_alpha_0_among_others_is_left_in_peace(problem) -> None:
    alpha = np.array([0.5, 0.0, 0.5, 0.5, 0.5])
    for method in (A.FLIX(alpha=alpha), A.Scafflix(alpha=alpha, p=0.4)):
        result = run(problem, method, 5)
        np.testing.assert_allclose(result.personal(1)["w"], local_models(problem)[1], atol=1e-11)
        numbers = 3 + (method.name == "scafflix")  # a weight travels with Scafflix's iterates
        assert result.simulation.bits_up == 5 * 4 * 64 * numbers


def test_every_solver_agrees_on_the_solution(problem) -> None:
    """Unequal alpha: gradient norm 1e-12 for the reference, 1e-9 between the solvers; the gap is never negative."""
    solution = problem.solve(ALPHA)
    assert solution.grad_norm <= 1e-12
    rand = {"name": "rand_k", "k": 2}
    methods = (A.FLIX(alpha=ALPHA), A.Scafflix(alpha=ALPHA), A.DIANA(alpha=ALPHA, compressor=rand))
    more = (A.Scafflix(alpha=ALPHA, control="gradient"), A.Scafflix(alpha=ALPHA, steps="fixed"))
    for method in (*methods, *more, A.FLIX(alpha=ALPHA, start="average")):
        result = pf.simulate(problem, method, rounds=3000, dtype="float64", eval_every=100, init="ones")
        np.testing.assert_allclose(result.global_params["w"], solution.params["w"], atol=1e-9)
        history = result.history
        assert (history["gap"] >= 0).all()
        assert history["gap"].iloc[-1] <= 1e-13
        assert history["grad_norm2"].iloc[-1] <= 1e-13
        assert history["distance"].iloc[-1] <= 1e-13


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01])
@pytest.mark.parametrize(
    ("make", "every"),
    [(A.FLIX, 1), (A.Scafflix, 1), (partial(A.DIANA, compressor={"name": "rand_k", "k": 2}), 5)],
)
def test_convergence_is_linear_to_the_last_digits_at_every_alpha(problem, make, every, alpha) -> None:
    """From 1e-2 of the start down to 1e-12, log f - f* falls on a line; i-Scaffnew is Scafflix at alpha = 1."""
    problem.solve(alpha)
    found = pf.simulate(problem, make(alpha=alpha), rounds=200 * every, dtype="float64", eval_every=every, init="ones")
    gap = found.history["gap"].to_numpy()
    assert (gap >= 0).all()
    assert gap[-1] <= 1e-12
    level = np.log10(np.maximum(gap, 1e-300))
    falling = np.flatnonzero((gap < 1e-2 * gap[0]) & (gap > 1e-12 * gap[0]))
    half = len(falling) // 2
    early, late = (np.polyfit(part, level[part], 1)[0] for part in (falling[:half], falling[half:]))
    assert early < 0
    assert late < 0.4 * early  # no sublinear tail


def test_the_gap_is_the_difference_of_the_values(problem) -> None:
    reference = problem.solve(ALPHA)
    history = pf.simulate(problem, A.FLIX(alpha=ALPHA), rounds=30, dtype="float64", init="ones").history
    early = history[history["gap"] > 1e-6]
    assert len(early) > 3
    np.testing.assert_allclose(early["gap"], early["objective"] - reference.value, atol=1e-11)


def test_the_one_shot_average_is_equation_5(problem) -> None:
    own, weights = local_models(problem), ALPHA**2 * problem.constants.smoothness
    result = run(problem, A.FLIX(alpha=ALPHA, start="average"), 1)
    np.testing.assert_allclose(result.global_params["w"], weights @ own / weights.sum(), atol=1e-11)
    assert result.simulation.bits_up == 5 * 64 * 4


def test_alpha_can_be_a_column_or_a_rule(problem) -> None:
    by_column, by_value = run(problem, A.FLIX(alpha="trust"), 5), run(problem, A.FLIX(alpha=ALPHA), 5)
    np.testing.assert_array_equal(by_column.global_params["w"], by_value.global_params["w"])
    sizes = np.array(SIZES)
    ruled = run(problem, A.FLIX(alpha="inverse_size"), 1).client_state.alpha
    np.testing.assert_allclose(ruled, 14 / (14 + sizes))


def test_control_variates_started_at_the_gradients_are_projected(problem) -> None:
    result = run(problem, A.Scafflix(alpha=ALPHA, p=0.3, control="gradient"), 1)
    own = local_models(problem)
    g = grads(problem, ALPHA[:, None] + (1 - ALPHA[:, None]) * own)
    shift = ALPHA @ g / np.sum(ALPHA**2)
    np.testing.assert_allclose(result.client_state.control["w"], g - ALPHA[:, None] * shift, atol=1e-11)
    np.testing.assert_array_equal(result.global_params["w"], 1.0)


def test_sampled_clients_keep_the_control_variates_of_the_absent(problem) -> None:
    result = run(problem, A.Scafflix(alpha=0.5, p=0.3), 400, participation=2)
    assert np.isfinite(result.global_params["w"]).all()
    assert result.history["objective"].iloc[-1] < result.history["objective"].iloc[0]


def test_compressed_messages_count_their_own_bits(problem) -> None:
    def bits(compressor, method=A.DCGD):
        return run(problem, method(alpha=0.5, compressor=compressor), 4).simulation.bits_up

    assert bits("identity") == 4 * 5 * 3 * 64
    assert bits({"name": "rand_k", "k": 1}) == 4 * 5 * 64
    assert bits({"name": "rand_k", "k": 1, "seeded": False}) == 4 * 5 * (64 + 2)
    assert bits({"name": "rand_k", "k": [1, 2, 3, 1, 1]}) == 4 * 8 * 64
    assert bits("natural", A.DIANA) == 4 * 5 * 3 * 12


def test_error_feedback_makes_up_for_the_bias_of_top_k(problem) -> None:
    """The error that the smaller coordinates leave behind is sent later: a tenth of the stepsize, far less error."""
    problem.solve(0.5)

    def gap(lr: float) -> float:
        method = A.DCGD(alpha=0.5, compressor={"name": "top_k", "k": 1}, lr=lr)
        return run(problem, method, 4000).history["gap"].iloc[-1]

    assert gap(1.0) < 1e-4
    assert gap(0.1) < gap(1.0) / 20


def test_dcgd_stays_in_a_neighbourhood_that_diana_leaves(problem) -> None:
    problem.solve(0.5)
    rand = {"name": "rand_k", "k": 1}
    noisy = pf.simulate(problem, A.DCGD(alpha=0.5, compressor=rand), rounds=2000, dtype="float64", eval_every=200)
    exact = pf.simulate(problem, A.DIANA(alpha=0.5, compressor=rand), rounds=4000, dtype="float64", eval_every=400)
    assert noisy.history["gap"].iloc[2:].min() > 1e-9
    assert exact.history["gap"].iloc[-1] < 1e-13


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.FLIX(alpha=1.5), "flix: alpha must be at least 0 and at most 1, found 1.5"),
        (A.FLIX(alpha=[0.1, 0.2]), "flix: alpha has 2 values, expected one for each of 5 clients"),
        (A.FLIX(alpha=[0.1, 0.2, 0.3, 2.0, 0.1]), "flix: alpha must be from 0 to 1, found 2 for client 'client-003'"),
        (A.FLIX(alpha="turst"), "did you mean 'trust'"),
        (A.Scafflix(p=0.0), "scafflix: p must be above 0 and at most 1, found 0"),
        (A.Scafflix(p=1.5), "scafflix: p must be above 0 and at most 1, found 1.5"),
        (A.Scaffnew(lr=[0.1, 0.2]), "lr has 2 values, expected one for each of 5 clients"),
        (A.DCGD(compressor={"name": "rand_k", "k": 9}), "rand_k: k must be a whole number from 1 to 3"),
        (A.DCGD(compressor="rnd_k"), "did you mean 'rand_k'"),
        (A.DIANA(compressor={"name": "top_k", "k": 1}), "diana: needs an unbiased compressor"),
        (A.DCGD(compressor={"name": "top_k", "k": 1}), "dcgd: lr must be given with the biased compressor top_k"),
    ],
)
def test_bad_input_is_refused_by_name(problem, method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        run(problem, method, 1)


def test_a_net_needs_stepsizes(federation) -> None:
    problem = pf.Problem(federation, pf.models.mlp([4]), "softmax")
    with pytest.raises(pf.PolyfedError, match="flix: lr must be given: the theory's value needs a linear model"):
        run(problem, A.FLIX(alpha=0.5, plm_epochs=1), 1)
    history = run(problem, A.FLIX(alpha=0.5, plm_epochs=5, lr=0.3, batch=4, server_optimizer="adam"), 20).history
    assert history["objective"].iloc[-1] < history["objective"].iloc[0]


@pytest.mark.parametrize(
    ("method", "theorem"),
    [
        (A.FLIX(alpha=1.0, lr=5.0), "Theorem 2"),
        (A.DCGD(alpha=1.0, lr=5.0), "Theorem 4"),
        (A.DIANA(alpha=1.0, lr=5.0), "Theorem 5"),
        (A.Scaffnew(lr=5.0, p=0.5), "Theorem 1"),
    ],
)
def test_a_stepsize_above_the_theorems_limit_is_a_warning_that_names_it(problem, method, theorem) -> None:
    with pytest.warns(UserWarning, match=rf"lr = 5 is above \d.*, the largest that {theorem} allows"):
        run(problem, method, 1)


def test_a_separable_problem_without_ridge_has_no_solution() -> None:
    x = np.array([[1.0, 0.2], [2.0, -0.1], [-1.0, 0.3], [-2.0, 0.1]])
    fed = pf.Federation.from_arrays([(x, np.sign(x[:, 0]))] * 2, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "logistic")
    with pytest.raises(pf.PolyfedError, match=r"no minimiser was found.*separable data has none"):
        problem.solve(1.0)


def test_clients_larger_than_a_block_are_solved_too(problem, monkeypatch) -> None:
    """Rows are then read block by block; the solution, the local models and the gap are the same."""
    expected = problem.solve(ALPHA)
    monkeypatch.setattr(objective, "BLOCK", 7)
    other = pf.Problem(problem.federation, pf.models.linear(bias=False), "logistic", l2=0.1)
    found = other.solve(ALPHA)
    assert found.grad_norm <= 1e-12
    np.testing.assert_allclose(found.params["w"], expected.params["w"], atol=1e-11)
    result = run(other, A.FLIX(alpha=ALPHA), 400)
    np.testing.assert_allclose(result.client_state.own["w"], local_models(problem), atol=1e-11)
    assert 0 <= result.history["gap"].iloc[-1] <= 1e-13


def test_without_ridge_a_minimiser_is_found_where_there_is_one(problem) -> None:
    plain = pf.Problem(problem.federation, pf.models.linear(bias=False), "logistic")
    assert plain.solve(1.0).grad_norm <= 1e-12
