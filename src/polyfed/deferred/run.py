"""A loop with deferred weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyfed.deferred.body import Op
from polyfed.deferred.plan import Plan
from polyfed.deferred.sums import Sum, Walk


class _Run(Walk):
    """The body, on arrays."""

    def plain(self, op: Op, values: list[Any]) -> Sequence[Any]:
        return op.bind(values)

    def product(self, op: Op) -> Sum | None:
        return None


class Deferred:
    """What is made before the loop, its steps, and the weights after it.

    Weights are sum_b c_b M_b + sum_s x_s' g_s: of the matrices M that they and the constants were at the beginning,
    and of the rows g of all steps. While a step does nothing but add rows, their factors c are left out.
    """

    def __init__(self, plan: Plan, steps: int, carry: Sequence[Any]) -> None:
        self.plan, self.body, self.steps, self.carry = plan, plan.body, steps, carry
        rows = [plan.rows(number) for number in range(len(plan.inputs))]
        self.firsts, self.own = np.cumsum([0, *rows[:-1]]).tolist(), sum(rows)
        self.fixed = self._fixed()
        self.x, self.matrices = self._inputs(), self._matrices()
        self.outputs = [self._by_step(self.times(self.x, matrix)) for matrix in self.matrices]
        self.gram = self._by_step(self.times(self.x, self.x.T))

    def run(self) -> list[Any]:
        carry = self._begin()
        others, rows, factors = lax.fori_loop(jnp.int32(0), jnp.int32(self.steps), self._step, carry)
        found, rest = dict(zip(self.plan.weights, zip(rows, factors, strict=True), strict=True)), iter(others)
        return [self._end(leaf, *found[leaf]) if leaf in found else next(rest) for leaf in range(len(self.carry))]

    def _fixed(self) -> dict[int, Any]:
        """The values that are there before the loop."""
        walk = _Run(self.body)
        carried = dict(zip(self.body.carry, self.carry, strict=True))
        walk.env = self.body.constants | {place: leaf for place, leaf in carried.items() if place in self.plan.fixed}
        walk.walk([op for op in self.body.ops if self.plan.fixed.issuperset(op.outputs)])
        return walk.env

    def _inputs(self) -> jax.Array:
        """The rows of all known inputs, step after step."""

        def one(index: jax.Array) -> jax.Array:
            walk = _Run(self.body)
            walk.env = {**self.fixed, self.body.index: index}
            walk.walk([op for op in self.body.ops if self.plan.known.issuperset(op.outputs)])
            return jnp.concatenate([_turned(walk.env[place], across) for place, across in self.plan.inputs])

        inputs = jax.vmap(one)(jnp.arange(self.steps, dtype=jnp.int32))
        return lax.optimization_barrier(inputs.reshape(self.steps * self.own, -1))

    def _matrices(self) -> list[jax.Array]:
        """The weights at the beginning, then the constants."""
        weights = [_turned(self.carry[leaf], leaf in self.plan.turned) for leaf in self.plan.weights]
        return weights + [_turned(self.fixed[place], across) for place, across in self.plan.constants]

    def times(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """A product, as precise as the body's."""
        (precision,) = self.plan.precisions
        return jnp.matmul(a, b, precision=precision)

    def one(self, n: int) -> jax.Array:
        """The factors of the n-th matrix alone."""
        return jnp.zeros(len(self.matrices), self.x.dtype).at[n].set(1)

    def _by_step(self, rows: jax.Array) -> jax.Array:
        return rows.reshape(self.steps, self.own, -1)

    def _begin(self) -> tuple[list[Any], list[Any], list[Any]]:
        others = [leaf for n, leaf in enumerate(self.carry) if n not in self.plan.weights]
        rows = [jnp.zeros((len(self.x), self.plan.sizes(leaf)[1]), self.x.dtype) for leaf in self.plan.weights]
        return others, rows, [None if steady else self.one(n) for n, steady in enumerate(self.plan.steady)]

    def _step(self, index: jax.Array, carry: Any) -> tuple[list[Any], list[Any], list[Any]]:
        others, rows, factors = carry
        plan, walk, rest = self.plan, _Step(self, index, rows, factors), iter(others)
        walk.env = {**self.fixed, self.body.index: index}
        for leaf, place in enumerate(self.body.carry):
            deferred = leaf in plan.weights
            walk.env[place] = Sum({leaf: 1}, flipped=leaf in plan.turned) if deferred else next(rest)
        walk.walk([op for op in self.body.ops if not plan.fixed.issuperset(op.outputs)])
        left = [walk.value(place) for leaf, place in enumerate(self.body.outputs) if leaf not in plan.weights]
        moved = [walk.moved(n, walk.env[self.body.outputs[leaf]]) for n, leaf in enumerate(plan.weights)]
        return left, [rows for rows, _ in moved], [factors for _, factors in moved]

    def _end(self, leaf: int, rows: jax.Array, factors: jax.Array | None) -> jax.Array:
        n = self.plan.weights.index(leaf)
        start = self.matrices[n] if factors is None else combined(factors, self.matrices, rows.shape[1])
        return _turned(start + self.times(self.x.T, rows), leaf in self.plan.turned)


class _Step(_Run):
    """A step of the loop, which has `rows` and `factors` in the weights' stead."""

    def __init__(self, loop: Deferred, index: jax.Array, rows: list[Any], factors: list[Any]) -> None:
        super().__init__(loop.body)
        self.loop, self.plan, self.index, self.rows, self.factors = loop, loop.plan, index, rows, factors

    def product(self, op: Op) -> Sum | None:
        if op.outputs[0] not in self.plan.products:
            return None
        side, number = self.plan.products[op.outputs[0]]
        axes = op.contracted
        assert axes is not None
        return Sum(rows={number: _turned(self.env[op.inputs[1 - side]], axes[1 - side] == 1)}, flipped=side == 1)

    def read(self, op: Op, total: Sum) -> jax.Array:
        side, number = self.plan.reads[op.outputs[0]]
        mine = slice(self.loop.firsts[number], self.loop.firsts[number] + self.plan.rows(number))
        gram, outputs = self._now(self.loop.gram)[mine], [self._now(every)[mine] for every in self.loop.outputs]
        found: Any = 0
        times = self.loop.times
        for leaf, factor in total.weights.items():
            n = self.plan.weights.index(leaf)
            rows, factors = self.rows[n], self.factors[n]
            start = outputs[n] if factors is None else combined(factors, outputs, rows.shape[1])
            found = found + factor * (start + times(gram, rows))
        for n, factor in total.constants.items():
            found = found + factor * outputs[len(self.plan.weights) + n]
        for other, g in total.rows.items():
            now = lax.dynamic_slice_in_dim(gram, self._slot(other), self.plan.rows(other), 1)
            found = found + times(now, g)
        return _turned(found, side == 1)

    def dense(self, total: Sum) -> jax.Array:
        found: Any = 0
        for number, g in total.rows.items():
            place, across = self.plan.inputs[number]
            found = found + self.loop.times(_turned(self.env[place], not across), g)
        for n, factor in total.constants.items():
            found = found + factor * self.loop.matrices[len(self.plan.weights) + n]
        return _turned(found, total.flipped)

    def constant(self, place: int, flipped: bool) -> int | None:
        item = place, flipped
        return self.plan.constants.index(item) if item in self.plan.constants else None

    def moved(self, n: int, total: Sum) -> tuple[jax.Array, jax.Array | None]:
        """The rows and factors of one of the weights after the step."""
        rows, factors = self.rows[n], self.factors[n]
        if factors is not None:
            rows, factors = jnp.zeros_like(rows), jnp.zeros_like(factors)
            for leaf, factor in total.weights.items():
                other = self.plan.weights.index(leaf)
                rows = rows + factor * self.rows[other]
                mixed = self.factors[other]
                factors = factors + factor * (self.loop.one(other) if mixed is None else mixed)
            for constant, factor in total.constants.items():
                factors = factors + factor * self.loop.one(len(self.plan.weights) + constant)
        for number, g in total.rows.items():
            rows = lax.dynamic_update_slice_in_dim(rows, g, self._slot(number), 0)
        return rows, factors

    def _slot(self, number: int) -> jax.Array:
        """Where the step's rows of these inputs begin."""
        return self.index * self.loop.own + self.loop.firsts[number]

    def _now(self, every: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(every, self.index, keepdims=False)


def combined(factors: jax.Array, matrices: Sequence[jax.Array], width: int) -> Any:
    """The matrices' sum with these factors; those of another width are of another layer, and have none."""
    return sum(factors[n] * matrix for n, matrix in enumerate(matrices) if matrix.shape[-1] == width)


def _turned(matrix: jax.Array, turn: bool) -> jax.Array:
    return matrix.T if turn else matrix
