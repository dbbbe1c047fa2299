"""The character LSTM: against a NumPy loop, and the differentiation of a plain scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import polyfed as pf
from polyfed.core import trees
from polyfed.models.recurrent import lstm_layer
from polyfed.problem.problem import precision
from tests.conftest import few


def texts(every: bool = False, tokens: int = 6, length: int = 7, rows: int = 9) -> pf.Federation:
    rng = np.random.default_rng(0)
    clients = []
    for _ in range(3):
        x = rng.integers(0, tokens, (rows, length)).astype(np.int32)
        clients.append((x, (x + 1) % tokens if every else (x[:, -1] + 1) % tokens))
    return pf.Federation.from_arrays(clients, classes=tokens, validation=0, test=0)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def numpy_lstm(params, x: np.ndarray) -> np.ndarray:
    """Logits at every position, one cell after the other."""
    sequence = params["embedding"][x]
    for layer in params["lstm"]:
        size = layer["b"].size // 4
        h = c = np.zeros((len(x), size))
        states = []
        for t in range(x.shape[1]):
            z = np.concatenate([sequence[:, t], h], axis=1) @ layer["w"] + layer["b"]
            i, f, o, g = (z[:, k * size : (k + 1) * size] for k in range(4))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
        sequence = np.stack(states, axis=1)
    return sequence @ params["fc"]["w"] + params["fc"]["b"]


@pytest.mark.parametrize("every", [False, True])
def test_the_logits_are_those_of_a_numpy_loop(every: bool) -> None:
    problem = pf.Problem(texts(every), pf.models.lstm(embedding=3, hidden=5))
    with precision("float64"):
        params = jax.tree.map(np.asarray, problem.init(seed=1))
        x, y = problem.federation.train.of(1)
        expected = numpy_lstm(params, x)
        found = problem.model.apply(params, jnp.asarray(x))
        np.testing.assert_allclose(found, expected if every else expected[:, -1], atol=1e-12)
        logits = expected if every else expected[:, -1]
        picked = np.take_along_axis(logits, y[..., None], -1)[..., 0]
        loss = np.mean(np.log(np.exp(logits).sum(-1)) - picked)
        assert problem.value(params, problem.federation.clients[1]) == pytest.approx(loss, abs=1e-12)


def test_the_backward_pass_is_that_of_a_plain_scan() -> None:
    """First derivatives, and products of the Hessian with a direction (forward over reverse)."""

    def plain(layer, x):
        hidden = layer["b"].size // 4

        def step(carry, x):
            h, c = carry
            i, f, o, g = jnp.split(jnp.concatenate([x, h], axis=1) @ layer["w"] + layer["b"], 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], hidden))
        return lax.scan(step, (zero, zero), x)[1]

    with precision("float64"):
        keys = jax.random.split(jax.random.key(0), 4)
        layer = {"w": jax.random.normal(keys[0], (3 + 4, 16)), "b": jax.random.normal(keys[1], (16,))}
        x, up = jax.random.normal(keys[2], (6, 2, 3)), jax.random.normal(keys[3], (6, 2, 4))
        ours = jax.grad(lambda layer, x: jnp.vdot(up, lstm_layer(layer, x)), (0, 1))
        theirs = jax.grad(lambda layer, x: jnp.vdot(up, plain(layer, x)), (0, 1))
        np.testing.assert_allclose(lstm_layer(layer, x), plain(layer, x), atol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), ours(layer, x), theirs(layer, x))
        direction = jax.tree.map(jnp.ones_like, (layer, x))
        found, expected = (jax.jvp(f, (layer, x), direction)[1] for f in (ours, theirs))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), found, expected)


def test_the_papers_model_has_its_number_of_parameters() -> None:
    # 80*8 + (8+256)*1024+1024 + (256+256)*1024+1024 + 256*80+80
    problem = pf.Problem(texts(tokens=80), pf.models.lstm())
    assert trees.count(jax.eval_shape(problem.init)) == 817_872


@pytest.mark.parametrize("every", few([False, True], False))
def test_it_learns_the_alphabet(every: bool) -> None:
    problem = pf.Problem(texts(every), pf.models.lstm(embedding=4, hidden=12, layers=1))
    method = pf.algorithms.FedAvg(lr=1.0, local_steps=10, batch=9)
    result = pf.simulate(problem, method, rounds=25, eval_every=25)
    assert float(result.history["global_train_accuracy"].to_numpy()[-1]) > 0.95
    assert np.all(result.evaluate("train")["global_accuracy"] <= 1)


def test_the_accuracy_of_many_positions_is_the_share_of_right_ones() -> None:
    problem = pf.Problem(texts(every=True), pf.models.lstm(embedding=3, hidden=5))
    logits, labels = jnp.zeros((2, 4, 6)), jnp.array([[0, 0, 0, 0], [0, 1, 2, 0]])
    np.testing.assert_allclose(problem.loss.metric(logits, labels), [1.0, 0.5])
    np.testing.assert_allclose(problem.loss.value(logits, labels), np.log([6.0, 6.0]), atol=1e-6)


def test_tokens_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(pf.PolyfedError, match="token id 5, the model knows 0 to 3: set vocabulary"):
        pf.Problem(texts(), pf.models.lstm(hidden=4, vocabulary=4))
    assert pf.Problem(texts(), pf.models.lstm(hidden=4, vocabulary=90)).model.tokens == 90


def test_data_that_are_not_tokens_are_refused(federation) -> None:
    with pytest.raises(pf.PolyfedError, match="reads token ids, whole numbers; this data's examples are float"):
        pf.Problem(federation, pf.models.lstm(hidden=4))
    with pytest.raises(pf.PolyfedError, match="lstm reads rows of token ids"):
        pf.Problem(pf.data.load("quadratics"), pf.models.lstm(), "squared")


def test_a_model_of_single_outputs_is_refused_where_every_position_has_a_label() -> None:
    with pytest.raises(pf.PolyfedError, match=r"needs outputs of shape \(rows, 7, 6\), the model gives \(rows, 6\)"):
        pf.Problem(texts(every=True), pf.models.mlp([4]))


@pytest.mark.parametrize("options", [{"hidden": 0}, {"layers": 1.5}, {"embedding": "8"}, {"dropout": -0.1}])
def test_options_that_cannot_be_are_refused(options) -> None:
    with pytest.raises(pf.PolyfedError, match=f"lstm: {next(iter(options))} must be"):
        pf.models.lstm(**options)
