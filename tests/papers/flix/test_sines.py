"""FLIX on sines: the line search, the objective and the claims, each against an independent computation."""

from __future__ import annotations

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree

import polyfed as pf
from polyfed import papers
from polyfed.algorithms.flix import FlixServer
from polyfed.algorithms.shared.mixture import Mixture
from polyfed.papers.flix import sines
from polyfed.papers.flix.line_search import line_search_descent
from polyfed.problem.problem import precision

TINY = sines.Scale(((1, 3),), (0.5, 1.0), 2, points=8, test_points=16)


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


@pytest.fixture
def nets():
    """A task of four clients, a server's net and four nets of the clients' own."""
    owns = [sines.initial(seed) for seed in range(1, 5)]
    return sines.tasks((1, 3), TINY, 0), sines.initial(0), jax.tree.map(lambda *leaves: jnp.stack(leaves), *owns), owns


def problem() -> pf.Problem:
    federation = pf.data.sines((1, 3), TINY.points, test_points=TINY.test_points)
    return pf.Problem(federation, sines.NETWORK, "squared")


def armijo(curvature, x, tolerance):
    """Gradient descent on sum(curvature x^2) / 2, the step halved until the value falls enough."""
    step, iterations = 1.0, 0
    while np.linalg.norm(curvature * x) >= tolerance:
        grad = curvature * x
        while True:
            trial = x - step * grad
            if curvature @ trial**2 / 2 <= curvature @ x**2 / 2 - 1e-4 * step * grad @ grad:
                break
            step /= 2
        x, step, iterations = trial, 1.25 * step, iterations + 1
    return x, iterations


@pytest.mark.parametrize("largest", [0.3, 7.0, 90.0])
def test_a_descent_takes_the_steps_of_a_plain_backtracking_loop(largest):
    curvature, begin = np.array([0.2, largest]), np.array([3.0, -1.0])
    found = line_search_descent(lambda x: jnp.asarray(curvature) @ x**2 / 2, jnp.asarray(begin), 1e-6)
    x, iterations = armijo(curvature, begin, 1e-6)
    assert iterations > 10
    assert int(found.iterations) == iterations
    np.testing.assert_allclose(np.asarray(found.x), x, rtol=1e-9, atol=1e-15)
    assert float(found.grad_norm) == pytest.approx(np.linalg.norm(curvature * x), rel=1e-9)
    assert float(found.grad_norm) < 1e-6


def test_side_by_side_descents_are_those_of_each_alone():
    curvatures = jnp.array([[0.2, 0.3], [1.0, 40.0], [5.0, 5.0]])

    def descend(curvature):
        return line_search_descent(lambda x: curvature @ x**2 / 2, jnp.array([3.0, -1.0]), 1e-3)

    together = jax.vmap(descend)(curvatures)
    alone = [descend(curvature) for curvature in curvatures]
    assert together.iterations.tolist() == [int(one.iterations) for one in alone]
    assert len(set(together.iterations.tolist())) == 3
    np.testing.assert_allclose(together.x, np.stack([one.x for one in alone]), rtol=1e-12)


def test_a_descent_that_cannot_go_on_stops_and_shows_it():
    uphill = line_search_descent(lambda x: lax.stop_gradient(2 * x) - x, jnp.asarray(3.0), 1e-2)
    assert (float(uphill.x), int(uphill.iterations), float(uphill.grad_norm)) == (3.0, 0, 1.0)
    capped = line_search_descent(lambda x: x, jnp.asarray(3.0), 1e-2, most=7)
    assert int(capped.iterations) == 7
    nowhere = line_search_descent(lambda x: x**2, jnp.asarray(0.001), 1e-2)
    assert int(nowhere.iterations) == 0


def test_the_error_is_that_of_two_tanh_layers_of_forty():
    params = sines.initial(3)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 2 * 40 + 41 * 40 + 41
    x, y = np.linspace(-5, 5, 7)[:, None], np.arange(7.0)
    first, second, last = (jax.tree.map(np.asarray, layer) for layer in params)
    hidden = np.tanh(np.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"])
    expected = np.mean((hidden @ last["w"] + last["b"] - y) ** 2)
    assert float(sines.error(params, jnp.asarray(x), jnp.asarray(y))) == pytest.approx(expected, rel=1e-12)


def test_the_initial_net_is_spread_over_its_interval_and_depends_on_the_seed():
    for layer in sines.initial(0):
        bound = layer["w"].shape[0] ** -0.5
        for leaf in layer.values():
            assert leaf.dtype == jnp.float64
            assert float(jnp.max(jnp.abs(leaf))) <= bound
        assert float(jnp.min(layer["w"])) < -0.5 * bound < 0.5 * bound < float(jnp.max(layer["w"]))
    assert not np.array_equal(sines.initial(0)[1]["w"], sines.initial(1)[1]["w"])


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_mixture_is_the_one_that_flix_deploys(nets, alpha):
    task, server, stacked, owns = nets
    found = np.asarray(sines.errors(server, stacked, alpha, task.test_x, task.test_y))
    method, plain = pf.algorithms.FLIX(alpha=alpha, lr=0.1), problem()
    for client, own in enumerate(owns):
        state = FlixServer(server, (), jnp.zeros(()))
        personal = method.personal(state, Mixture(jnp.asarray(alpha), own, jnp.zeros(())))
        value = plain.value(personal, plain.federation.clients[client], "test")  # with its factor of one half
        assert found[client] == pytest.approx(2 * value, rel=1e-10)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_server_stops_by_the_papers_rule(nets, alpha):
    """|(1/n) sum_i grad f_i(T_i(x))| < 1e-2, the gradients by another way; and not before."""
    task, server, stacked, owns = nets
    plain = problem()

    def norm(params):
        grads = []
        for name, own in zip(plain.federation.clients, owns, strict=True):
            mixed = jax.tree.map(lambda a, b: alpha * a + (1 - alpha) * b, params, own)
            grads.append(2 * np.asarray(ravel_pytree(plain.grad(mixed, name))[0]))
        return np.linalg.norm(np.mean(grads, axis=0))

    found = sines.flix(server, stacked, jnp.asarray(alpha), task.x, task.y)
    assert norm(server) > 1e-2
    assert norm(found.x) < 1e-2
    assert norm(found.x) == pytest.approx(float(found.grad_norm) / alpha, rel=1e-8)
    before = line_search_descent(
        lambda p: jnp.mean(sines.errors(p, stacked, alpha, task.x, task.y)), server, 0.0, int(found.iterations) - 1
    )
    assert norm(before.x) >= 1e-2


def test_with_all_weight_on_the_global_model_the_local_ones_do_not_matter(nets):
    task, server, stacked, _ = nets
    one, other = (
        sines.flix(server, own, jnp.asarray(1.0), task.x, task.y)
        for own in (stacked, jax.tree.map(jnp.ones_like, stacked))
    )
    assert int(one.iterations) == int(other.iterations) > 0
    np.testing.assert_array_equal(one.x[1]["w"], other.x[1]["w"])


def test_pure_local_models_are_descents_on_each_clients_own_points(nets):
    task, server, _, _ = nets
    found = sines.pure_local(server, task.x, task.y)
    plain = problem()
    for client, name in enumerate(plain.federation.clients):
        own = jax.tree.map(lambda leaf, i=client: leaf[i], found.x)
        norm = 2 * np.linalg.norm(ravel_pytree(plain.grad(own, name))[0])
        assert norm < 1e-2
        assert norm == pytest.approx(float(found.grad_norm[client]), rel=1e-8)
        assert float(found.value[client]) == pytest.approx(2 * plain.value(own, name), rel=1e-10)


def made_up(*curves: tuple[float, float, float, float]) -> list[dict[str, float | str]]:
    """A draw's test errors at alpha = 0, 0.3, 0.6, 1."""
    return [
        {"split": "1/3", "draw": draw, "alpha": alpha, "test_error": value}
        for draw, curve in enumerate(curves, 1)
        for alpha, value in zip((0.0, 0.3, 0.6, 1.0), curve, strict=True)
    ]


def test_an_alpha_in_between_must_beat_both_extremes_in_the_mean_over_draws():
    between, over_global, over_local = sines.claims(made_up((4.0, 3.0, 2.0, 9.0), (4.0, 5.0, 4.0, 9.0)))
    assert between.passed
    assert (
        "3.00e+00 at alpha = 0.6, 4.00e+00 pure local, 9.00e+00 global; 1 of 2 draws show it alone" in between.measured
    )
    assert over_global.passed
    assert "33% (1/3)" in over_global.measured
    assert not over_local.passed
    assert "75% (1/3)" in over_local.measured
    for edge in ((1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0)):
        assert not sines.claims(made_up(edge))[0].passed


def test_a_run_has_a_row_for_every_draw_split_and_alpha(monkeypatch, tmp_path):
    monkeypatch.setattr(sines, "QUICK", TINY)
    ((_, folder, outcome),) = papers.reproduce("flix/fig4", tmp_path, quick=True)
    with (folder / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = [("1/3", draw, alpha) for draw in ("1", "2") for alpha in ("0.0", "0.5", "1.0")]
    assert [(row["split"], row["draw"], row["alpha"]) for row in rows] == expected
    for row in rows:
        whole, smaller, larger = (float(row[f"test_error{end}"]) for end in ("", "_smaller_group", "_larger_group"))
        assert whole == pytest.approx((smaller + 3 * larger) / 4, rel=1e-12)
        assert float(row["grad_norm"]) < 1e-2
    assert len(outcome.claims) == 3
    assert "8 of 8 pure local models ended with |grad f_i| < 0.01" in outcome.notes[0]
    assert len(outcome.figures[0].axes) == 3


@pytest.mark.slow
def test_the_quick_version_beats_one_global_model(tmp_path):
    ((_, folder, outcome),) = papers.reproduce("flix/fig4", tmp_path, quick=True)
    assert len(outcome.rows) == 14
    assert (folder / "figure.svg").stat().st_size > 5000
    against_global = next(claim for claim in outcome.claims if "one global model dramatically" in claim.text)
    assert against_global.passed
    assert all(row["grad_norm"] < 1e-2 for row in outcome.rows)
