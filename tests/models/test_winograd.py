"""Convolutions with fewer products: the same as lax's, to rounding, and no worse rounded than the plain sum."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.models import winograd
from polyfed.models.conv import convolve
from polyfed.problem.problem import DType, precision
from tests.models.test_conv import images, lax_conv


def fewer(x: jax.Array, w: jax.Array, padding: str = "valid") -> jax.Array:
    return convolve(x, winograd.weights(w), padding)


@pytest.mark.parametrize(("padding", "size"), [("valid", (3, 4)), ("valid", (9, 6)), ("same", (4, 5))])
def test_a_convolution_and_its_gradients_are_those_of_lax(padding: str, size: tuple[int, int]) -> None:
    with precision("float64"):
        keys = jax.random.split(jax.random.key(0), 3)
        x, w = jax.random.normal(keys[0], (2, *size, 3)), jax.random.normal(keys[1], (3, 3, 3, 5))
        direction = jax.random.normal(keys[2], w.shape)

        @partial(jax.jit, static_argnums=0)
        def results(convolution):
            """The outputs, both gradients of a function of them, and a second derivative."""

            def loss(x, w):
                return jnp.sum(jnp.tanh(convolution(x, w, padding)))

            again = jax.jvp(lambda w: jax.grad(loss, 1)(x, w), (w,), (direction,))[1]
            return convolution(x, w, padding), *jax.grad(loss, (0, 1))(x, w), again

        for a, b in zip(results(fewer), results(lax_conv), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-11)


def test_float32_is_rounded_about_as_the_plain_sum_is() -> None:
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(size=(4, 12, 12, 32)), 0).astype(np.float32)
    w = (0.08 * rng.normal(size=(3, 3, 32, 64))).astype(np.float32)
    up = rng.normal(size=(4, 10, 10, 64)).astype(np.float32)

    def results(convolution, dtype: DType) -> list[np.ndarray]:
        @jax.jit
        def passes(x, w, up):
            found, pull = jax.vjp(convolution, x, w)
            return found, *pull(up)

        with precision(dtype):
            return [np.asarray(part, np.float64) for part in passes(*(jnp.asarray(part, dtype) for part in (x, w, up)))]

    exact = results(convolve, "float64")
    errors = [
        [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(results(way, "float32"), exact, strict=True)]
        for way in (convolve, fewer)
    ]
    assert np.all(np.array(errors[1]) < 1e-6)
    assert np.all(np.array(errors[1]) < 3 * np.array(errors[0]))


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((3, 3, 32, 32), "float32", True),
        ((3, 3, 31, 32), "float32", False),
        ((3, 3, 32, 16), "float32", False),
        ((5, 5, 32, 32), "float32", False),
        ((3, 3, 32, 32), "bfloat16", False),
    ],
)
def test_it_is_for_3_x_3_kernels_of_many_channels_and_no_16_bit_numbers(shape, dtype, expected) -> None:
    assert winograd.suits(jnp.zeros(shape, dtype)) == expected


def test_a_network_takes_it_where_it_suits(monkeypatch) -> None:
    model = pf.models.cnn([32, 32], pool=[1, 2], hidden=[5])
    with precision("float64"):
        problem = pf.Problem(images((9, 9), dtype="float64"), model)
        params = problem.model.init(jax.random.key(0))
        x = jax.random.normal(jax.random.key(1), (4, 9, 9))

        def gradient():
            return jax.jit(jax.grad(lambda p: jnp.sum(problem.model.apply(p, x) ** 2)))(params)

        taken = []
        real = winograd.convolve
        monkeypatch.setattr(winograd, "convolve", lambda x, w: taken.append(w.shape) or real(x, w))
        found = gradient()
        assert set(taken) == {(16, 32, 32)}
        monkeypatch.setattr(winograd, "suits", lambda w: False)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(gradient()), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
