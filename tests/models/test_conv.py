"""Convolutional networks: against lax.conv and NumPy, and the papers' sizes."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import polyfed as pf
from polyfed.core import trees
from polyfed.models.conv import best_block, convolve, in_blocks, max_pool
from polyfed.problem.problem import precision
from tests.conftest import few


def images(shape: tuple[int, ...] = (9, 9), classes: int = 3, rows: int = 12, dtype: str = "uint8") -> pf.Federation:
    rng = np.random.default_rng(0)
    clients = []
    for _ in range(3):
        x = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
        clients.append((x if dtype == "uint8" else (x / 255).astype(dtype), rng.integers(0, classes, rows)))
    return pf.Federation.from_arrays(clients, classes=classes, validation=0, test=0)


def lax_conv(x: jax.Array, w: jax.Array, padding: str) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), padding.upper(), dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(
    ("padding", "size", "block"),
    [
        ("valid", 1, (1, 1)),
        ("valid", 3, (1, 1)),
        ("valid", 3, (2, 1)),
        ("valid", 5, (2, 4)),
        ("valid", 3, None),
        ("same", 2, (1, 1)),
        ("same", 5, (4, 2)),
        ("same", 3, None),
    ],
)
def test_a_convolution_and_its_gradient_are_those_of_lax(
    padding: str, size: int, block: tuple[int, int] | None
) -> None:
    with precision("float64"):
        keys = jax.random.split(jax.random.key(0), 3)
        x, w = jax.random.normal(keys[0], (2, 7, 6, 3)), jax.random.normal(keys[1], (size, size, 3, 4))
        up = jax.random.normal(keys[2], jax.eval_shape(lambda x, w: lax_conv(x, w, padding), x, w).shape)

        @partial(jax.jit, static_argnums=0)
        def with_gradients(convolution, x, w, up):
            outputs, pull = jax.vjp(convolution, x, w)
            return outputs, *pull(up)

        expected = with_gradients(lambda x, w: lax_conv(x, w, padding), x, w, up)
        found = with_gradients(lambda x, w: convolve(x, w, padding, block), x, w, up)
        for ours, usual, tolerance in zip(found, expected, (1e-12, 1e-11, 1e-11), strict=True):
            np.testing.assert_allclose(ours, usual, atol=tolerance)


def test_blocks_are_small_where_the_weights_are_many_and_large_where_they_are_few() -> None:
    assert best_block((50, 32, 32, 3), (5, 5, 3, 6)) == (4, 4)
    assert best_block((20, 26, 26, 32), (3, 3, 32, 64)) == (1, 2)
    assert best_block((1, 8, 8, 64), (3, 3, 64, 512)) == (1, 1)


def test_a_second_derivative_of_a_convolution_is_that_of_lax() -> None:
    """A Hessian-vector product, as the exact variant of Per-FedAvg takes it."""
    with precision("float64"):
        keys = jax.random.split(jax.random.key(0), 3)
        x, w = jax.random.normal(keys[0], (2, 6, 5, 2)), jax.random.normal(keys[1], (3, 3, 2, 4))
        direction = jax.random.normal(keys[2], w.shape)

        @partial(jax.jit, static_argnums=0)
        def product(convolution):
            return jax.jvp(jax.grad(lambda w: jnp.sum(jnp.tanh(convolution(x, w)))), (w,), (direction,))[1]

        np.testing.assert_allclose(product(convolve), product(lambda x, w: lax_conv(x, w, "valid")), atol=1e-11)


@pytest.mark.parametrize(("rows", "most", "size"), [(6, 4, 3), (6, 6, 6), (5, 4, 1), (6, 0, 1)])
def test_images_in_blocks_give_what_they_give_together(rows: int, most: int, size: int) -> None:
    seen = []

    def features(w, x):
        seen.append(x.shape[0])
        return max_pool(jnp.tanh(convolve(x, w)), 2).reshape(x.shape[0], -1)

    with precision("float64"):
        keys = jax.random.split(jax.random.key(0), 2)
        x, w = jax.random.normal(keys[0], (rows, 6, 6, 2)), jax.random.normal(keys[1], (3, 3, 2, 4))
        found, gradient = jax.jit(jax.value_and_grad(lambda w: jnp.sum(in_blocks(features, most)(w, x) ** 2)))(w)
        assert set(seen) == {size}
        expected, whole = jax.jit(jax.value_and_grad(lambda w: jnp.sum(features(w, x) ** 2)))(w)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, whole, rtol=1e-11)


def test_no_convolution_is_left_in_the_program_of_clients_with_their_own_weights() -> None:
    problem = pf.Problem(images(), pf.models.cnn([4], hidden=[5]))
    apply = problem.model.apply

    def gradients(params, x):
        return jax.vmap(jax.grad(lambda p, x: jnp.sum(apply(p, x) ** 2)))(params, x)

    params = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(0), 3))
    program = str(jax.make_jaxpr(gradients)(params, jnp.zeros((3, 2, 9, 9))))
    assert "conv_general" not in program
    assert "dot_general" in program


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pooling_crops_what_does_not_fill_a_square(size: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 7, 8, 3)).astype(np.float32)
    found = np.asarray(max_pool(jnp.asarray(x), size))
    assert found.shape == (2, 7 // size, 8 // size, 3)
    for i, j in np.ndindex(found.shape[1:3]):
        square = x[:, i * size : (i + 1) * size, j * size : (j + 1) * size]
        np.testing.assert_array_equal(found[:, i, j], square.max(axis=(1, 2)))


@pytest.mark.full
@pytest.mark.parametrize("activation", few(["relu", "tanh", "gelu"], "relu"))
def test_the_network_and_its_gradient_are_those_of_plain_layers(activation: str) -> None:
    """Against lax.conv and lax.reduce_window, the activation before the pooling, in float64."""
    model = pf.models.cnn([3, 4], kernel=[3, 2], pool=[1, 2], hidden=[5], activation=activation)
    problem = pf.Problem(images((9, 8, 2), dtype="float64"), model)
    act = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}[activation]

    def plain(params, x):
        for layer, pool in zip(params["conv"], (1, 2), strict=True):
            x = act(lax_conv(x, layer["w"], "valid") + layer["b"])
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, pool, pool, 1), (1, pool, pool, 1), "VALID")
        x = x.reshape(x.shape[0], -1)
        x = act(x @ params["fc"][0]["w"] + params["fc"][0]["b"])
        return x @ params["fc"][1]["w"] + params["fc"][1]["b"]

    with precision("float64"):
        params = problem.init(seed=1)
        x, y = map(jnp.asarray, problem.federation.train.of(1))
        np.testing.assert_allclose(jax.jit(problem.model.apply)(params, x), jax.jit(plain)(params, x), atol=1e-11)

        def loss(params):
            logits = plain(params, x)
            return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(y)), y])

        expected = jax.jit(jax.grad(loss))(params)
        found = problem.grad(params, problem.federation.clients[1])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        # 3*3*1*32+32 + 3*3*32*64+64 + 12*12*64*128+128 + 128*62+62
        ("femnist_cnn", (28, 28), 62, 1_206_590),
        # 5*5*3*20+20 + 5*5*20*50+50 + 5*5*50*512+512 + 512*10+10
        ("cifar_cnn", (32, 32, 3), 10, 672_212),
        # 5*5*3*6+6 + 5*5*6*16+16 + 5*5*16*120+120 + 120*84+84 + 84*10+10
        ("lenet", (32, 32, 3), 10, 62_006),
    ],
)
def test_the_papers_networks_have_their_number_of_parameters(name: str, shape, classes: int, count: int) -> None:
    problem = pf.Problem(images(shape, classes, rows=2), pf.models.MODELS[name]())
    assert trees.count(jax.eval_shape(problem.init)) == count


def test_images_with_and_without_a_channel_axis_and_as_bytes_or_floats_are_the_same() -> None:
    model = pf.models.cnn([4], hidden=[5])
    variants = [images((9, 9)), images((9, 9, 1)), images((9, 9), dtype="float32")]
    values = []
    for federation in variants:
        problem = pf.Problem(federation, model)
        values.append(problem.value(problem.init(seed=1), federation.clients[0]))
    np.testing.assert_allclose(values, values[0], atol=1e-6)


def test_one_number_per_image_serves_the_squared_loss() -> None:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(6, 5, 5)), rng.normal(size=6)) for _ in range(2)]
    problem = pf.Problem(pf.Federation.from_arrays(clients), pf.models.cnn([2], hidden=[]), "squared")
    assert np.isfinite(problem.value(problem.init(), problem.federation.clients[0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": []}, "cnn: channels must be a list of positive whole numbers"),
        ({"kernel": [3]}, "cnn: kernel must be a positive whole number, or a list of 2"),
        ({"pool": 0}, "cnn: pool"),
        ({"dropout": 1.0}, r"cnn: dropout must be a number in \[0, 1\), or a list of 2, found"),
        ({"dropout": [0.1, 0.2, 0.3]}, "cnn: dropout"),
        ({"padding": "sam"}, "did you mean 'same'"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.models.cnn(**options)


def test_data_that_are_not_images_or_too_small_are_refused(federation) -> None:
    with pytest.raises(pf.PolyfedError, match=r"femnist_cnn reads images.*shape \(4,\)"):
        pf.Problem(federation, pf.models.femnist_cnn())
    with pytest.raises(pf.PolyfedError, match=r"lenet: images of shape .* are too small"):
        pf.Problem(images((9, 9)), pf.models.lenet())
