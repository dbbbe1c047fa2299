"""Narrow layers, which a CPU takes outputs first."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from polyfed.models.dense import NARROW, product


def loss(multiply):
    return lambda w, x: jnp.sum(jnp.sin(multiply(x, w)))


@pytest.mark.parametrize("outputs", [1, 3, NARROW, NARROW + 1])
def test_a_product_and_its_derivatives_are_those_of_a_plain_one(outputs: int) -> None:
    """Forward, backward in both arguments, and forward over backward, for clients with weights of their own."""
    with jax.enable_x64(True):
        draws = np.random.default_rng(0)
        x, w = jnp.asarray(draws.normal(size=(4, 5, 7))), jnp.asarray(draws.normal(size=(4, 7, outputs)))

        def derivatives(multiply):
            value, gradient = loss(multiply), jax.grad(loss(multiply), argnums=(0, 1))
            curve = jax.vmap(lambda w, x: jax.jvp(jax.grad(value), (w, x), (w, x))[1])
            return jax.vmap(multiply)(x, w), *jax.vmap(gradient)(w, x), curve(w, x)

        for found, expected in zip(derivatives(product), derivatives(jnp.matmul), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_only_narrow_layers_are_turned() -> None:
    def program(outputs: int) -> str:
        return jax.jit(product).lower(jnp.ones((5, 7)), jnp.ones((7, outputs))).as_text()

    assert "optimization_barrier" in program(NARROW)
    assert "optimization_barrier" not in program(NARROW + 1)
