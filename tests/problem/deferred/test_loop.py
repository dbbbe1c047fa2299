"""Deferred weights are those of an ordinary loop, and no step touches them; what cannot be deferred is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.problem import deferred
from polyfed.problem.deferred.body import Body
from polyfed.problem.deferred.plan import Deferral, planned

STEPS, ROWS, INPUTS, OUTPUTS, CLASSES = 6, 5, 64, 32, 3
Step = Callable[[Any, Any], Any]


def _data() -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, INPUTS)), rng.integers(0, CLASSES, 40)
    return jnp.asarray(x), jnp.asarray(y), jnp.asarray(rng.integers(0, 40, (STEPS, ROWS)))


def _model(seed: int) -> Tree:
    rng = np.random.default_rng(seed)
    shapes = {"b": (OUTPUTS,), "last": (OUTPUTS, CLASSES), "w": (INPUTS, OUTPUTS)}
    return {name: jnp.asarray(0.2 * rng.normal(size=shape)) for name, shape in shapes.items()}


def _gradient(params: Tree, index: Any, turned: bool = False) -> Tree:
    x, y, rows = _data()

    def loss(params: Tree) -> jax.Array:
        first = jnp.einsum("bi,oi->bo", x[rows[index]], params["w"]) if turned else x[rows[index]] @ params["w"]
        outputs = jax.nn.relu(first + params["b"]) @ params["last"]
        return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(ROWS), y[rows[index]]])

    return jax.grad(loss)(params)


def _sgd(index: Any, p: Tree) -> Tree:
    return trees.descend(p, 0.1, _gradient(p, index))


def _proximal(index: Any, p: Tree) -> Tree:
    return trees.descend(p, 0.1, trees.add(_gradient(p, index), trees.scale(0.5, trees.subtract(p, _model(2)))))


def _corrected(index: Any, p: Tree) -> Tree:
    return trees.descend(p, 0.1, trees.subtract(_gradient(p, index), trees.scale(0.1, _model(2))))


def _momentum(index: Any, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
    p, moment = carry
    moment = trees.add(trees.scale(0.9, moment), _gradient(p, index))
    return trees.descend(p, 0.1, moment), moment


def _mixture(index: Any, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
    """The second model's gradient is at a mixture with the first one, which has moved."""
    shared, own = carry
    shared = _sgd(index, shared)
    return shared, trees.descend(own, 0.03, _gradient(trees.mix(0.3, own, shared), index))


def _average(index: Any, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
    p, mean = carry
    p = _sgd(index, p)
    return p, jax.tree.map(lambda m, leaf: m + (leaf - m) / (index + 1), mean, p)


def _clipped(index: Any, p: Tree) -> Tree:
    gradient = _gradient(p, index)
    return trees.descend(p, 0.1 / jnp.maximum(1, jnp.sqrt(trees.squared_norm(gradient))), gradient)


def _turned(index: Any, p: Tree) -> Tree:
    return trees.descend(p, 0.1, _gradient(p, index, turned=True))


def _pair() -> tuple[Tree, Tree]:
    return _model(1), trees.zeros_like(_model(1))


def _other_axis() -> Tree:
    return _model(1) | {"w": _model(1)["w"].T}


DEFERRED: dict[str, tuple[Step, Callable[[], Any], list[bool]]] = {
    "plain steps": (_sgd, lambda: _model(1), [True]),
    "a proximal term": (_proximal, lambda: _model(1), [False]),
    "control variates": (_corrected, lambda: _model(1), [False]),
    "momentum": (_momentum, _pair, [False, False]),
    "a mixture": (_mixture, lambda: (_model(1), _model(2)), [True, True]),
    "an average of iterates": (_average, _pair, [True, False]),
    "a clipped gradient": (_clipped, lambda: _model(1), [True]),
    "outputs first": (_turned, _other_axis, [True]),
}
"""body, carry, and of each of the deferred weights whether a step only adds to it"""


def _plan(body: Step, carry: Any, steps: int = STEPS) -> Deferral | None:
    leaves, tree = jax.tree.flatten(carry)

    def flat(index: Any, *leaves: Any) -> Any:
        return jax.tree.leaves(body(index, jax.tree.unflatten(tree, leaves)))

    return planned(Body(jax.make_jaxpr(flat)(0, *leaves), "tpu"), steps)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be deferred is."""
    monkeypatch.setattr(Deferral, "gains", lambda plan, steps: True)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", DEFERRED)
def test_the_numbers_are_those_of_an_ordinary_loop(name: str) -> None:
    body, begin, steady = DEFERRED[name]
    with jax.enable_x64(True):
        carry = begin()
        plan = _plan(body, carry)
        assert plan is not None
        assert [plan.steady(leaf) for leaf in plan.weights] == steady
        usual = jax.jit(lambda carry: lax.fori_loop(0, STEPS, body, carry))(carry)
        ours = jax.jit(lambda carry: deferred.loop(STEPS, body, carry, "tpu"))(carry)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), ours, usual)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", sorted(DEFERRED.keys() - {"a clipped gradient"}))
def test_no_step_touches_the_weights(name: str) -> None:
    body, begin, _ = DEFERRED[name]
    carry = begin()
    closed = jax.make_jaxpr(lambda carry: deferred.loop(STEPS, body, carry, "tpu"))(carry)
    (loop,) = [eqn for eqn in closed.eqns if eqn.primitive.name in ("while", "scan")]
    inner = loop.params["body_jaxpr"] if loop.primitive.name == "while" else loop.params["jaxpr"]
    made = {var.aval.shape for eqn in inner.jaxpr.eqns for var in eqn.outvars}  # pyright: ignore[reportAttributeAccessIssue]
    assert made.isdisjoint({(INPUTS, OUTPUTS), (OUTPUTS, INPUTS)})
    assert (ROWS, OUTPUTS) in made


def _adam(index: Any, p: Tree) -> Tree:
    return jax.tree.map(lambda leaf, g: leaf - 0.1 * g / (jnp.abs(g) + 1e-3), p, _gradient(p, index))


def _decayed_by_norm(index: Any, p: Tree) -> Tree:
    return trees.descend(p, 0.1 * trees.squared_norm(p), _gradient(p, index))


def _rounded(index: Any, p: Tree) -> Tree:
    narrow = p | {"w": p["w"].astype(jnp.bfloat16).astype(p["w"].dtype)}
    return trees.descend(p, 0.1, _gradient(narrow, index))


def _noisy(index: Any, p: Tree) -> Tree:
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), index), (INPUTS, OUTPUTS))
    return _sgd(index, p | {"w": p["w"] + noise})


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("body", [_adam, _decayed_by_norm, _rounded, _noisy])
def test_weights_that_are_used_otherwise_are_not_deferred(body: Step) -> None:
    carry = _model(1)
    assert _plan(body, carry) is None
    usual = lax.fori_loop(0, STEPS, body, carry)
    jax.tree.map(np.testing.assert_array_equal, deferred.loop(STEPS, body, carry, "tpu"), usual)


@pytest.mark.usefixtures("always")
def test_products_of_two_precisions_are_not_one_product() -> None:
    x = jnp.ones((STEPS, ROWS, INPUTS))

    def body(precise: Any) -> Step:
        def step(index: Any, w: jax.Array) -> jax.Array:
            outputs = jnp.tanh(jnp.matmul(x[index], w, precision="highest"))
            return w - 0.1 * jnp.matmul(x[index].T, outputs, precision=precise)

        return step

    w = _model(1)["w"]
    plan = _plan(body("highest"), w)
    assert plan is not None
    assert plan.precisions == {(lax.Precision.HIGHEST, lax.Precision.HIGHEST)}
    assert _plan(body(None), w) is None


@pytest.mark.usefixtures("always")
def test_a_step_that_speaks_does_so_once(capfd: pytest.CaptureFixture[str]) -> None:
    def body(index: Any, p: Tree) -> Tree:
        jax.debug.print("step {}", index)
        return _sgd(index, p)

    jax.block_until_ready(deferred.loop(STEPS, body, _model(1), "tpu"))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("step") == STEPS


X = 0.3 * np.random.default_rng(1).normal(size=(STEPS, ROWS, 7))
SQUARE = 0.3 * np.random.default_rng(2).normal(size=(7, 7))


def _slope(index: Any, w: jax.Array) -> jax.Array:
    return jnp.asarray(X)[index].T @ jnp.tanh(jnp.asarray(X)[index] @ w)


def _symmetric(index: Any, w: jax.Array) -> jax.Array:
    return w - 0.1 * (_slope(index, w) + _slope(index, w).T)


def _read_both_ways(index: Any, w: jax.Array) -> jax.Array:
    return w - 0.1 * _slope(index, w) - 0.1 * _slope(index, w.T)


def _reshaped(index: Any, w: jax.Array) -> jax.Array:
    return w - 0.1 * _slope(index, lax.reshape(w, (7, 7), (1, 0)))


def _swapped(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    a, b = pair
    return b, a - 0.1 * _slope(index, b)


def _previous(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return pair[0] - 0.1 * _slope(index, pair[0]), pair[0]


def _barred(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    slope, one = lax.optimization_barrier((_slope(index, pair[0]), jnp.ones(3)))
    return pair[0] - 0.1 * slope, pair[1] + 2 * one


def _masked(index: Any, w: jax.Array) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(3, impl="rbg"), index)
    x = jnp.asarray(X)[index] * jax.random.bernoulli(key, 0.5, (ROWS, 7))
    return w - 0.1 * (x.T @ jnp.tanh(x @ w))


def _called_back(index: Any, w: jax.Array) -> jax.Array:
    number = jax.pure_callback(lambda i: np.asarray(i, X.dtype), jax.ShapeDtypeStruct((), X.dtype), index)
    return w - 0.01 * number * _slope(index, w)


def _rerun(index: Any, w: jax.Array) -> jax.Array:
    @jax.checkpoint
    def squares(x: jax.Array) -> jax.Array:
        return lax.scan(lambda total, row: (total + jnp.sum(row**2), None), jnp.zeros(()), x)[0]

    return w - 0.1 * jax.grad(lambda w: squares(jnp.asarray(X)[index] @ w))(w)


def _decayed(index: Any, w: jax.Array) -> jax.Array:
    return w - 0.1 * (_slope(index, w) + jax.grad(lambda w: 0.5 * jnp.sum(w * w))(w))


def _beside(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return pair[0] - 0.1 * _slope(index, pair[0]), 0.9 * pair[1]


def _counted(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return pair[0] - 0.1 * _slope(index, pair[0]), pair[1] + index


def _narrow(index: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    x = jnp.asarray(X, jnp.float16)[index]
    return pair[0] - jnp.float16(0.1) * (x.T @ jnp.tanh(x @ pair[0])), pair[1]


HARD: dict[str, tuple[Step, Callable[[], Any], int]] = {
    "a gradient and its transpose": (_symmetric, lambda: jnp.asarray(SQUARE), 0),
    "weights and their transpose": (_read_both_ways, lambda: jnp.asarray(SQUARE), 0),
    "a reshape that transposes": (_reshaped, lambda: jnp.asarray(SQUARE), 0),
    "two models in turns": (_swapped, lambda: (jnp.asarray(SQUARE), jnp.asarray(SQUARE.T)), 2),
    "a model that was not finite": (_previous, lambda: (jnp.asarray(SQUARE), jnp.full((7, 7), jnp.nan)), 2),
    "a barrier": (_barred, lambda: (jnp.asarray(SQUARE), jnp.zeros(3)), 1),
    "draws that differ many at once": (_masked, lambda: jnp.asarray(SQUARE), 0),
    "a call of Python": (_called_back, lambda: jnp.asarray(SQUARE), 1),
    "a checkpoint around a loop": (_rerun, lambda: jnp.asarray(SQUARE), 1),
    "weight decay": (_decayed, lambda: jnp.asarray(SQUARE), 1),
    "an unrelated matrix": (_beside, lambda: (jnp.asarray(SQUARE), jnp.ones((3, 4))), 1),
    "a small integer": (_counted, lambda: (jnp.asarray(SQUARE), jnp.int8(0)), 1),
    "numbers of 16 bits": (_narrow, lambda: (jnp.asarray(SQUARE, jnp.float16), jnp.ones(3)), 0),
}
"""body, carry, and how many weights are deferred"""


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_hard_cases_are_those_of_an_ordinary_loop(name: str, compiled: bool) -> None:
    body, begin, count = HARD[name]
    with jax.enable_x64(True):
        carry = begin()
        plan = _plan(body, carry)
        assert (0 if plan is None else len(plan.weights)) == count
        made = jax.jit if compiled else lambda function: function
        usual = made(lambda carry: lax.fori_loop(0, STEPS, body, carry))(carry)
        ours = made(lambda carry: deferred.loop(STEPS, body, carry, "tpu"))(carry)
        assert jax.tree.map(lambda leaf: leaf.dtype, ours) == jax.tree.map(lambda leaf: leaf.dtype, usual)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), ours, usual)


def test_no_steps_change_nothing() -> None:
    with jax.enable_x64(True):
        np.testing.assert_array_equal(deferred.loop(0, _decayed, jnp.asarray(SQUARE), "tpu"), SQUARE)


def test_a_carry_that_changes_its_shape_is_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="carry"):
        deferred.loop(STEPS, lambda index, w: w[:-1], jnp.zeros((7, 7)), "tpu")


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows", "steps", "gains"),
    [
        (784, 200, 20, 20, True),  # the MLP of the benchmarks
        (784, 200, 20, 1, False),  # one step moves the weights once
        (784, 10, 20, 20, False),  # softmax regression: a step's inputs are more than its weights
        (784, 200, 20, 200, False),  # more rows than weights
        (60, 200, 20, 20, False),  # fewer inputs than rows
        (3072, 512, 50, 20, True),
    ],
)
def test_weights_are_deferred_where_that_moves_less(
    inputs: int, outputs: int, rows: int, steps: int, gains: bool
) -> None:
    x = jnp.zeros((steps, rows, inputs))

    def body(index: Any, w: jax.Array) -> jax.Array:
        return w - 0.1 * (x[index].T @ jnp.tanh(x[index] @ w))

    weights = jnp.zeros((inputs, outputs))
    assert (_plan(body, weights, steps) is not None) == gains
    with jax.default_matmul_precision("highest"):
        assert _plan(body, weights, steps) is None  # products take four times as long
