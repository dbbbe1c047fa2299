"""FLIX on sines: the nets and their objective, against independent computations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import polyfed as pf
from polyfed.algorithms.flix import FlixServer
from polyfed.algorithms.shared.mixture import Mixture
from polyfed.papers.flix import sine_nets
from polyfed.papers.flix.line_search import line_search_descent
from polyfed.problem.problem import precision

TINY = sine_nets.Scale(((1, 3),), (0.5, 1.0), 2, stationary=3e-3, points=8, test_points=16)


@pytest.fixture(autouse=True)
def double():
    with precision("float64"):
        yield


@pytest.fixture
def nets():
    """A task of four clients, a server's net and four nets of the clients' own."""
    owns = [sine_nets.initial(seed) for seed in range(1, 5)]
    return (
        sine_nets.sine_clients((1, 3), TINY, 0),
        sine_nets.initial(0),
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *owns),
        owns,
    )


def problem() -> pf.Problem:
    federation = pf.data.sines((1, 3), TINY.points, test_points=TINY.test_points)
    return pf.Problem(federation, sine_nets.NETWORK, "squared")


def test_the_error_is_that_of_two_tanh_layers_of_forty():
    params = sine_nets.initial(3)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 2 * 40 + 41 * 40 + 41
    x, y = np.linspace(-5, 5, 7)[:, None], np.arange(7.0)
    first, second, last = (jax.tree.map(np.asarray, layer) for layer in params)
    hidden = np.tanh(np.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"])
    expected = np.mean((hidden @ last["w"] + last["b"] - y) ** 2)
    assert float(sine_nets.error(params, jnp.asarray(x), jnp.asarray(y))) == pytest.approx(expected, rel=1e-12)


def test_the_initial_net_is_spread_over_its_interval_and_depends_on_the_seed():
    for layer in sine_nets.initial(0):
        bound = layer["w"].shape[0] ** -0.5
        for leaf in layer.values():
            assert leaf.dtype == jnp.float64
            assert float(jnp.max(jnp.abs(leaf))) <= bound
        assert float(jnp.min(layer["w"])) < -0.5 * bound < 0.5 * bound < float(jnp.max(layer["w"]))
    assert not np.array_equal(sine_nets.initial(0)[1]["w"], sine_nets.initial(1)[1]["w"])


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_mixture_is_the_one_that_flix_deploys(nets, alpha):
    task, server, stacked, owns = nets
    errors = np.asarray(sine_nets.errors(server, stacked, alpha, task.test_x, task.test_y))
    method, plain = pf.algorithms.FLIX(alpha=alpha, lr=0.1), problem()
    for client, own in enumerate(owns):
        state = FlixServer(server, (), jnp.zeros(()))
        personal = method.personal(state, Mixture(jnp.asarray(alpha), own, jnp.zeros(())))
        value = plain.value(personal, plain.federation.clients[client], "test")  # with its factor of one half
        assert errors[client] == pytest.approx(2 * value, rel=1e-10)


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

    descent = sine_nets.flix(server, stacked, jnp.asarray(alpha), task.x, task.y)
    assert norm(server) > 1e-2
    assert norm(descent.x) < 1e-2
    assert norm(descent.x) == pytest.approx(float(descent.grad_norm) / alpha, rel=1e-8)
    before = line_search_descent(
        lambda p: jnp.mean(sine_nets.errors(p, stacked, alpha, task.x, task.y)),
        server,
        0.0,
        int(descent.iterations) - 1,
    )
    assert norm(before.x) >= 1e-2


def test_with_all_weight_on_the_global_model_the_local_ones_do_not_matter(nets):
    task, server, stacked, _ = nets
    one, other = (
        sine_nets.flix(server, own, jnp.asarray(1.0), task.x, task.y)
        for own in (stacked, jax.tree.map(jnp.ones_like, stacked))
    )
    assert int(one.iterations) == int(other.iterations) > 0
    np.testing.assert_array_equal(one.x[1]["w"], other.x[1]["w"])


def test_pure_local_models_are_descents_on_each_clients_own_points(nets):
    task, server, _, _ = nets
    descents = sine_nets.pure_local(server, task.x, task.y)
    plain = problem()
    for client, name in enumerate(plain.federation.clients):
        own = jax.tree.map(lambda leaf, i=client: leaf[i], descents.x)
        norm = 2 * np.linalg.norm(ravel_pytree(plain.grad(own, name))[0])
        assert norm < 1e-2
        assert norm == pytest.approx(float(descents.grad_norm[client]), rel=1e-8)
        assert float(descents.value[client]) == pytest.approx(2 * plain.value(own, name), rel=1e-10)
