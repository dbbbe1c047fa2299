"""Equinox modules as models."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.core import trees

if TYPE_CHECKING:
    from equinox.nn import Dropout, Linear


def untyped(value: Any) -> Any:
    """A wrong argument, as a caller without a type checker may give it."""
    return value


def test_without_equinox_the_message_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "equinox", None)
    with pytest.raises(pf.PolyfedError, match=r"pip install 'polyfed\[equinox\]'"):
        pf.models.equinox(untyped(lambda key: None))


@pytest.mark.full
def test_a_module_trains_as_the_same_network_of_ours_does(federation) -> None:
    eqx = pytest.importorskip("equinox")

    def make(key):
        return eqx.nn.MLP(4, 3, 8, 1, key=key)

    problem = pf.Problem(federation, pf.models.equinox(make))
    ours = pf.Problem(federation, pf.models.mlp([8]))
    module = problem.init(seed=0)
    assert trees.count(module) == 4 * 8 + 8 + 8 * 3 + 3
    start = [{"w": layer.weight.T, "b": layer.bias} for layer in module.layers]
    method = pf.algorithms.FedAvg(local_steps=3, batch=5)
    found = pf.simulate(problem, method, rounds=3, init=module)
    expected = pf.simulate(ours, method, rounds=3, init=start)
    for layer, other in zip(found.global_params.layers, expected.global_params, strict=True):
        np.testing.assert_allclose(layer.weight.T, other["w"], atol=1e-5)
        np.testing.assert_allclose(layer.bias, other["b"], atol=1e-5)


def test_a_module_itself_is_where_training_starts(federation) -> None:
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.Linear(4, 3, key=jax.random.key(7))
    problem = pf.Problem(federation, module)
    np.testing.assert_array_equal(problem.init().weight, module.weight)
    result = pf.simulate(problem, pf.algorithms.Local(local_steps=2), rounds=1)
    assert result.personal(federation.clients[0]).weight.shape == (3, 4)


def test_dropout_acts_in_training_alone(federation) -> None:
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        first: Linear
        drop: Dropout
        last: Linear

        def __init__(self, key):
            a, b = jax.random.split(key)
            self.first, self.last = eqx.nn.Linear(4, 8, key=a), eqx.nn.Linear(8, 3, key=b)
            self.drop = eqx.nn.Dropout(0.5)

        def __call__(self, x, key=None):
            return self.last(self.drop(jax.nn.relu(self.first(x)), key=key))

    problem = pf.Problem(federation, pf.models.equinox(Net))
    assert problem.model.train_apply is not None
    x, params = jnp.ones((6, 4)), problem.init()
    outputs = np.asarray(problem.model.apply(params, x))
    np.testing.assert_allclose(outputs, np.broadcast_to(outputs[0], outputs.shape), atol=1e-6)
    drawn = np.asarray(problem.model.train_apply(params, x, jax.random.key(0)))
    assert np.ptp(drawn, axis=0).max() > 1e-3
    result = pf.simulate(problem, pf.algorithms.FedAvg(local_steps=5, batch=5), rounds=3)
    assert np.isfinite(result.history["objective"]).all()


def test_what_is_no_module_is_refused() -> None:
    eqx = pytest.importorskip("equinox")
    with pytest.raises(pf.PolyfedError, match="must return an Equinox module, found"):
        pf.models.equinox(untyped(lambda key: jnp.zeros(3)))
    with pytest.raises(pf.PolyfedError, match="expected a module or a function of a key"):
        pf.models.equinox(untyped(3))
    with pytest.raises(pf.PolyfedError, match="modules with state, such as BatchNorm"):
        pf.models.equinox(lambda key: eqx.nn.BatchNorm(3, "batch", mode="batch"))
