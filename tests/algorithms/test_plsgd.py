"""PLSGD against a NumPy loop of Algorithm 1, its reductions, its outputs, its personal parts, and its refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms.shared import personal_part as additive
from polyfed.engine.simulation import Simulation
from tests.algorithms.comparison import INIT, ROUNDS, SEED, START, cohort, matrix, trained
from tests.algorithms.references.plsgd import low_rank, plsgd
from tests.algorithms.references.shared import clients_of
from tests.conftest import few

A = pf.algorithms
STEPS = 4
WORK: dict[str, Any] = {"lr": 0.3, "local_steps": STEPS, "batch": 4}


def algorithm_1(problem, lr, alpha, beta, batch, members, mask: np.ndarray | float = 1.0) -> dict[str, Any]:
    return plsgd(problem, ROUNDS, lr, alpha, beta, STEPS, batch, members, mask, start=START, seed=SEED)


def theta_of(result, client: int) -> np.ndarray:
    return matrix(jax.tree.map(lambda leaf: leaf[client], result.client_state.own))


@pytest.mark.parametrize(
    ("lr", "batch", "participation"),
    few([(0.3, 4, 1.0), (0.3, "full", 3), (pf.InverseStep(9.0, 30.0), 4, 3)], (pf.InverseStep(9.0, 30.0), 4, 3)),
)
def test_plsgd_is_algorithm_1(problem, lr, batch, participation) -> None:
    result = trained(
        problem, A.PLSGD(lr=lr, local_steps=STEPS, batch=batch, alpha=0.6, beta=1.4), participation=participation
    )
    rates = (lambda t: 0.3) if lr == 0.3 else (lambda t: 9.0 / (t + 30.0))
    rows = None if batch == "full" else batch
    expected = algorithm_1(problem, rates, 0.6, 1.4, rows, cohort(participation, problem))
    np.testing.assert_allclose(matrix(result.global_params), expected["w"], atol=1e-12)
    for m, theta in enumerate(expected["theta"]):
        np.testing.assert_allclose(theta_of(result, m), theta, atol=1e-12)
        np.testing.assert_allclose(matrix(result.personal(m)), expected["w"] + theta, atol=1e-12)


@pytest.mark.parametrize("participation", few([1.0, 2], 2))
def test_outputs_ii_and_iii_are_the_averages_of_theorem_2(problem, participation) -> None:
    method, members = A.PLSGD(**WORK, alpha=0.6, beta=0.8), cohort(participation, problem)
    found = algorithm_1(problem, lambda t: 0.3, 0.6, 0.8, 4, members)
    second = trained(problem, dataclasses.replace(method, output="II"), participation=participation)
    third = trained(problem, dataclasses.replace(method, output="III"), participation=participation)
    np.testing.assert_allclose(matrix(second.global_params), np.mean(found["mean_w"], axis=0), atol=1e-12)
    np.testing.assert_allclose(matrix(second.server.iterate), found["w"], atol=1e-12)
    np.testing.assert_allclose(matrix(third.global_params), found["w"], atol=1e-12)
    for m in range(len(problem)):
        w_and_theta = np.mean(found["mean_w"], axis=0) + np.mean([row[m] for row in found["thetas"]], axis=0)
        np.testing.assert_allclose(matrix(second.personal(m)), w_and_theta, atol=1e-12)
        own = np.mean(found["models"][m], axis=0) if found["models"][m] else found["w"]
        np.testing.assert_allclose(matrix(third.personal(m)), own, atol=1e-12)
    assert second.facts.wire_up == 2 * third.facts.wire_up


@pytest.mark.full
def test_alpha_0_is_local_sgd_with_an_outer_stepsize(problem) -> None:
    for beta in (1.0, 1.7):
        ours = trained(problem, A.PLSGD(**WORK, alpha=0.0, beta=beta), participation=3)
        other = trained(problem, A.LocalSGD(**WORK, server_lr=beta), participation=3)
        np.testing.assert_allclose(matrix(ours.global_params), matrix(other.global_params), atol=1e-12)
        np.testing.assert_allclose(matrix(ours.personal(1)), matrix(ours.global_params), atol=0)
        assert ours.bits_up == other.bits_up


@pytest.mark.full
def test_alpha_0_and_one_step_is_minibatch_sgd_and_so_are_many_tiny_ones(problem) -> None:
    one = {**WORK, "local_steps": 1}
    ours, other = trained(problem, A.PLSGD(**one, alpha=0.0)), trained(problem, A.MinibatchSGD(**one))
    np.testing.assert_allclose(matrix(ours.global_params), matrix(other.global_params), atol=1e-12)
    tiny = A.PLSGD(lr=1e-7, local_steps=STEPS, batch=4, alpha=0.0, beta=0.3 / (1e-7 * STEPS))
    many = trained(problem, A.MinibatchSGD(**WORK))
    np.testing.assert_allclose(matrix(trained(problem, tiny).global_params), matrix(many.global_params), atol=1e-6)


@pytest.mark.full
def test_beta_0_is_training_alone_with_one_step_and_in_the_limit_of_small_inner_steps(problem) -> None:
    one = {**WORK, "local_steps": 1}
    ours = trained(problem, A.PLSGD(**one, alpha=0.5, beta=0.0), participation=3)
    other = trained(problem, A.Local(**{**one, "lr": 0.15}), participation=3)
    limit = trained(problem, A.PLSGD(**{**WORK, "lr": 1e-8}, alpha=0.3e8, beta=0.0))
    alone = trained(problem, A.Local(**WORK))
    np.testing.assert_array_equal(matrix(ours.global_params), START)
    for m in range(len(problem)):
        np.testing.assert_allclose(matrix(ours.personal(m)), matrix(other.personal(m)), atol=1e-12)
        np.testing.assert_allclose(matrix(limit.personal(m)), matrix(alone.personal(m)), atol=1e-6)


@dataclasses.dataclass
class Plain:
    """An objective that runs step by step in Python: it counts the gradients and keeps what the steps carried."""

    client: Any
    round: Any = dataclasses.field(default_factory=lambda: jnp.int32(0))
    gradients: int = 0
    carried: list[Any] = dataclasses.field(default_factory=list)

    def grad(self, params, batch=None, tied=True):
        self.gradients += 1
        found = self.client.grad(matrix(params))
        return {"w": jnp.asarray(found[:-1]), "b": jnp.asarray(found[-1])}

    def train(self, step, carry, key, batching):
        for _ in range(batching.steps):
            carry = step(carry, None)
            self.carried.append(carry)
        return carry, batching.steps

    def weight(self, weighting):
        return 1.0

    def own(self, value):
        return value


def rounds_by_hand(problem, method, rounds: int = 2) -> Plain:
    """Two rounds of one client alone, outside the engine."""
    with jax.enable_x64(True):
        f, params = Plain(clients_of(problem)[1]), jax.tree.map(jnp.asarray, INIT)
        server, state = method.init_server(params), method.init_client(params)
        for _ in range(rounds):
            _, state = method.local(method.broadcast(server), state, f, jax.random.key(0))
    return f


@pytest.mark.parametrize("output", ["I", "II", "III"])
def test_one_gradient_a_step_serves_both_parts(problem, output) -> None:
    assert rounds_by_hand(problem, A.PLSGD(**WORK, output=output)).gradients == 2 * STEPS
    assert rounds_by_hand(problem, A.PLSGD(**WORK, rank=1)).gradients == 2 * STEPS
    assert rounds_by_hand(problem, A.APFL(**WORK)).gradients == 2 * 2 * STEPS


def test_alpha_w_minus_theta_does_not_change_during_local_steps(problem) -> None:
    walks = rounds_by_hand(problem, A.PLSGD(**WORK, alpha=0.7)).carried
    kept = [0.7 * matrix(walk.copy) - matrix(walk.own) for walk in walks]
    for k in range(STEPS):  # eq. (37); w starts the second round anew, so that the constant is another one there
        np.testing.assert_allclose(kept[k], 0.7 * START, atol=1e-14)
        np.testing.assert_allclose(kept[STEPS + k], kept[STEPS], atol=1e-14)
    assert np.abs(kept[STEPS] - kept[0]).max() > 1e-2
    assert np.abs(matrix(walks[0].own) - matrix(walks[-1].own)).max() > 1e-2


def test_personal_biases_leave_the_weights_to_everybody(problem) -> None:
    method = A.PLSGD(**WORK, alpha=0.6, personal_params="b")
    result = trained(problem, method, participation=3)
    mask = np.zeros_like(START)
    mask[-1] = 1
    expected = algorithm_1(problem, lambda t: 0.3, 0.6, 1.0, 4, cohort(3, problem), mask)
    assert list(result.client_state.own) == ["b"]
    for m, theta in enumerate(expected["theta"]):
        np.testing.assert_allclose(matrix(result.personal(m)), expected["w"] + theta, atol=1e-12)
        np.testing.assert_array_equal(result.personal(m)["w"], result.global_params["w"])


def test_low_rank_parts_follow_the_product_rule(problem) -> None:
    """theta = left right on the weights, and in full on the bias, which has no smaller form."""
    method = A.PLSGD(**{**WORK, "batch": "full"}, alpha=0.6, rank=1)
    simulation = Simulation(problem, method, dtype="float64", init=INIT, seed=SEED)
    simulation.prepare()
    starts = simulation.client_state.own["w"].left
    np.testing.assert_array_equal(simulation.client_state.own["w"].right, 0)
    assert np.abs(starts[0] - starts[1]).max() > 1e-3
    simulation.advance(1)
    moved = simulation.client_state.own
    for m, f in enumerate(clients_of(problem)):
        left, right, bias = low_rank(f, START, starts[m], 0.3, 0.6, STEPS)
        np.testing.assert_allclose(moved["w"].left[m], left, atol=1e-12)
        np.testing.assert_allclose(moved["w"].right[m], right, atol=1e-12)
        np.testing.assert_allclose(moved["b"][m], bias, atol=1e-12)
        deployed = simulation.personal(m)
        np.testing.assert_allclose(deployed["w"], simulation.global_params["w"] + left @ right, atol=1e-12)


def test_a_net_gets_a_personal_head_of_low_rank(federation) -> None:
    net = pf.Problem(federation, pf.models.mlp([6]), "softmax")
    method = A.PLSGD(lr=0.2, batch=4, personal_params=["1.w", "*.b"], rank=1)
    simulation = Simulation(net, method, devices=1)
    start = np.mean(simulation.measure()["personal"]["train"]["loss"])
    simulation.prepare()
    simulation.advance(20)
    own, shared = simulation.client_state.own, simulation.global_params
    assert sorted(own) == ["0.b", "1.b", "1.w"]
    assert own["1.w"].left.shape == (6, 6, 1)
    assert np.mean(simulation.measure()["personal"]["train"]["loss"]) < start - 0.1
    np.testing.assert_array_equal(simulation.personal(2)[0]["w"], shared[0]["w"])
    moved = simulation.personal(2)[1]["w"] - shared[1]["w"]
    np.testing.assert_allclose(moved, own["1.w"].left[2] @ own["1.w"].right[2], atol=1e-5)
    assert np.abs(moved).max() > 1e-3


def test_a_kernel_is_a_matrix_of_its_last_axis() -> None:
    params = {"conv": jnp.ones((3, 3, 2, 8)), "scale": jnp.ones(8), "one": jnp.ones(())}
    theta: Any = additive.drawn(additive.zeros(params, ["*"], 2), jax.random.key(0))
    assert theta["conv"].left.shape == (18, 2)
    assert theta["scale"].shape == (8,)
    moved = {**theta, "conv": theta["conv"]._replace(right=jnp.ones((2, 8)))}
    joined = additive.join(params, moved)
    np.testing.assert_allclose(joined["conv"].reshape(18, 8) - 1, theta["conv"].left @ np.ones((2, 8)), atol=1e-6)
    assert additive.paths(jnp.ones(3)) == ["model"]


@pytest.mark.parametrize("rank", [None, 1])
def test_a_newcomer_learns_its_theta_beside_the_global_model(problem, rank) -> None:
    method = A.PLSGD(lr=0.3, local_steps=6, batch="full", alpha=0.5, rank=rank)
    f, v = clients_of(problem)[3], START
    for _ in range(6):
        v = v - 0.15 * f.grad(v)
    with jax.enable_x64(True):
        objective = problem.objective("site-3", "train")
        found = method.adapt(method.init_server(jax.tree.map(jnp.asarray, INIT)), objective, jax.random.key(1))
    if rank is None:
        np.testing.assert_allclose(matrix(found), v, atol=1e-12)
    else:
        moved = np.linalg.svd(np.asarray(found["w"]) - INIT["w"], compute_uv=False)
        assert moved[1] < 1e-12 < 1e-3 < moved[0]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (A.PLSGD(alpha=-0.1), "plsgd: alpha must be at least 0, found -0.1"),
        (A.PLSGD(beta=float("nan")), "plsgd: beta must be at least 0"),
        (A.PLSGD(rank=0), "plsgd: rank must be a whole number, at least 1, found 0"),
        (A.PLSGD(output="IV"), "plsgd: output must be one of I, II, III"),  # pyright: ignore
        (A.PLSGD(output="II", local_epochs=2), "output = 'II' counts steps"),
        (A.PLSGD(personal_params=[]), "personal_params must be one or more patterns"),
        (A.PLSGD(personal_params=["b", "bias"]), "'bias' matches no parameter; there are b, w"),
    ],
)
def test_what_makes_no_sense_is_refused(problem, method, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        Simulation(problem, method)
