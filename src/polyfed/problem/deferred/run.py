"""A loop with deferred weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.problem.deferred.body import Op
from polyfed.problem.deferred.plan import Deferral
from polyfed.problem.deferred.sums import Sum, Walk


class Carry(NamedTuple):
    """What a loop with deferred weights carries from step to step.

    Weights are sum_b c_b M_b + sum_j sum_s c_js x_js' g_js, where the M are the weights and the constants at the
    beginning, and the g are the rows of each product j in each step s.
    """

    others: list[jax.Array]
    """the carry's other leaves"""
    rows: dict[int, jax.Array]
    """the g of each product, step after step"""
    factors: dict[int, jax.Array]
    """the c_b of each of the weights, apart from those that never change"""
    scales: dict[int, dict[int, jax.Array]]
    """the c_js of each of the weights, by product, apart from those that the rows have already"""


class Deferred:
    """What is made before the loop, its steps, and the weights after it."""

    def __init__(self, plan: Deferral, steps: int, carry: Sequence[jax.Array]) -> None:
        self.plan, self.body, self.steps, self.carry = plan, plan.body, steps, carry
        self.fixed = self._fixed()
        self.x = self._inputs()
        self.matrices = self._matrices()
        self.outputs = {
            n: [self._by_step(self.times(self.x[n], matrix)) for matrix in self.matrices] for n in plan.read
        }
        self.grams = {(a, b): self._by_step(self.times(self.x[a], self.x[b].T)) for a, b in plan.pairs}

    def run(self) -> list[jax.Array]:
        ended = lax.fori_loop(0, self.steps, self._step, self._begin())
        rest = iter(ended.others)
        return [self._end(leaf, ended) if leaf in self.plan.ended else next(rest) for leaf in range(len(self.carry))]

    def times(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """A product, as precise as the body's."""
        (precision,) = self.plan.precisions
        return jnp.matmul(a, b, precision=precision)

    def rows(self, place: int) -> int:
        """The rows of a product in a step."""
        return self.plan.rows(self.plan.products[place].inputs)

    def factors(self, carry: Carry, leaf: int) -> jax.Array:
        """The factors of all matrices in some weights."""
        if leaf in carry.factors:
            return carry.factors[leaf]
        return self.only(self.plan.weights.index(leaf))

    def only(self, n: int) -> jax.Array:
        """The factors of the n-th matrix alone."""
        return jnp.zeros(len(self.matrices), self.plan.kind(self.plan.weights[0])).at[n].set(1)

    def combined(self, leaf: int, factors: jax.Array, matrices: Sequence[jax.Array]) -> jax.Array:
        """The sum of the matrices that these weights may contain. One whose factor is 0 may be infinite."""
        scaled = ((factors[n], matrices[n]) for n in self.plan.sources(leaf))
        return _total(jnp.where(factor == 0, 0, factor * matrix) for factor, matrix in scaled)

    def _fixed(self) -> dict[int, jax.Array]:
        """The values that are known before the loop."""
        carried = dict(zip(self.body.carry, self.carry, strict=True))
        given = self.body.constants | {place: leaf for place, leaf in carried.items() if place in self.plan.fixed}
        return _computed([op for op in self.body.ops if self.plan.fixed.issuperset(op.outputs)], given)

    def _inputs(self) -> list[jax.Array]:
        """The rows of each of the known inputs, step after step."""
        needed = self.body.before([place for place, _ in self.plan.inputs])
        known = [op for op in needed if self.plan.known.issuperset(op.outputs)]

        def of_step(index: jax.Array) -> list[jax.Array]:
            values = _computed(known, {**self.fixed, self.body.index: index})
            return [_turned(values[place], across) for place, across in self.plan.inputs]

        inputs = jax.vmap(of_step)(jnp.arange(self.steps, dtype=self.body.avals[self.body.index].dtype))
        return lax.optimization_barrier([x.reshape(x.shape[0] * x.shape[1], x.shape[2]) for x in inputs])

    def _matrices(self) -> list[jax.Array]:
        """The weights at the beginning, then the constants."""
        weights = [_turned(self.carry[leaf], leaf in self.plan.turned) for leaf in self.plan.weights]
        return weights + [_turned(self.fixed[place], across) for place, across in self.plan.constants]

    def _by_step(self, rows: jax.Array) -> jax.Array:
        return rows.reshape(self.steps, len(rows) // self.steps, rows.shape[1])

    def _begin(self) -> Carry:
        plan, kind = self.plan, self.plan.kind(self.plan.weights[0])
        return Carry(
            [leaf for n, leaf in enumerate(self.carry) if n not in plan.ended],
            {
                place: jnp.zeros((self.steps * self.rows(place), plan.products[place].width), kind)
                for place in plan.kept
            },
            {leaf: self.only(n) for n, leaf in enumerate(plan.weights) if not plan.steady(leaf)},
            {
                leaf: {place: jnp.zeros(self.steps, kind) for place in plan.parts(leaf) if not plan.folded(place)}
                for leaf in plan.weights
            },
        )

    def _step(self, index: jax.Array, carry: Carry) -> Carry:
        plan, walk, rest = self.plan, _Step(self, index, carry), iter(carry.others)
        walk.env = {**self.fixed, self.body.index: index}
        for leaf, place in enumerate(self.body.carry):
            deferred = leaf in plan.ended
            walk.env[place] = Sum({leaf: 1}, flipped=leaf in plan.turned) if deferred else next(rest)
        walk.walk([op for op in self.body.ops if not plan.fixed.issuperset(op.outputs)])
        others = [walk.value(place) for leaf, place in enumerate(self.body.outputs) if leaf not in plan.ended]
        return walk.moved(others, {leaf: walk.sum_at(self.body.outputs[leaf]) for leaf in plan.weights})

    def _end(self, leaf: int, carry: Carry) -> jax.Array:
        """Some weights after the last step."""
        weights = self.matrices[self.plan.weights.index(leaf)]
        if leaf in carry.factors:
            weights = self.combined(leaf, carry.factors[leaf], self.matrices)
        for place in self.plan.parts(leaf):
            rows, scales = carry.rows[place], carry.scales[leaf].get(place)
            if scales is not None:
                rows = jnp.repeat(scales, self.rows(place))[:, None] * rows
            weights = weights + self.times(self.x[self.plan.products[place].inputs].T, rows)
        return _turned(weights, leaf in self.plan.turned)


class _Step(Walk[jax.Array]):
    """A step of the loop."""

    def __init__(self, loop: Deferred, index: jax.Array, carry: Carry) -> None:
        super().__init__(loop.body)
        self.loop, self.plan, self.index, self.carry = loop, loop.plan, index, carry
        self.now: dict[int, jax.Array] = {}
        """this step's rows of each product"""

    def sum_at(self, place: int) -> Sum[jax.Array]:
        """The sum at a place; the plan says that there is one."""
        total = self.env[place]
        assert isinstance(total, Sum)
        return total

    def plain(self, op: Op, values: list[jax.Array]) -> Sequence[jax.Array]:
        return op.bind(values)

    def product(self, op: Op) -> Sum[jax.Array] | None:
        place = op.outputs[0]
        if place not in self.plan.products:
            return None
        side, axes = self.plan.products[place].side, op.contracted
        assert axes is not None
        self.now[place] = _turned(self.value(op.inputs[1 - side]), axes[1 - side] == 1)
        return Sum(products={place: 1}, flipped=side == 1)

    def read(self, op: Op, total: Sum[jax.Array]) -> jax.Array:
        read = self.plan.reads[op.outputs[0]]
        outputs = [self._of_step(every) for every in self.loop.outputs[read.inputs]]
        terms = [factor * self._outputs(leaf, read.inputs, outputs) for leaf, factor in total.weights.items()]
        terms += [factor * outputs[len(self.plan.weights) + n] for n, factor in total.constants.items()]
        for place, factor in total.products.items():
            gram, rows = self._gram(read.inputs, place), self.loop.rows(place)
            mine = lax.dynamic_slice_in_dim(gram, self.index * rows, rows, 1)
            terms.append(factor * self.loop.times(mine, self.now[place]))
        return _turned(_total(terms), read.side == 1)

    def _outputs(self, leaf: int, inputs: int, outputs: list[jax.Array]) -> jax.Array:
        """x W of some weights, as they were before the step."""
        product = outputs[self.plan.weights.index(leaf)]
        if leaf in self.carry.factors:
            product = self.loop.combined(leaf, self.carry.factors[leaf], outputs)
        for place in self.plan.parts(leaf):
            gram, scales = self._gram(inputs, place), self.carry.scales[leaf].get(place)
            if scales is not None:
                gram = gram * jnp.repeat(scales, self.loop.rows(place))
            product = product + self.loop.times(gram, self.carry.rows[place])
        return product

    def dense(self, total: Sum[jax.Array]) -> jax.Array:
        terms: list[jax.Array] = []
        for place, factor in total.products.items():
            x, across = self.plan.inputs[self.plan.products[place].inputs]
            terms.append(factor * self.loop.times(_turned(self.value(x), not across), self.now[place]))
        terms += [factor * self.loop.matrices[len(self.plan.weights) + n] for n, factor in total.constants.items()]
        return _turned(_total(terms), total.flipped)

    def constant(self, place: int, flipped: bool) -> int | None:
        item = place, flipped
        return self.plan.constants.index(item) if item in self.plan.constants else None

    def moved(self, others: list[jax.Array], ended: dict[int, Sum[jax.Array]]) -> Carry:
        """The carry after the step."""
        rows = {}
        for place, before in self.carry.rows.items():
            factors = [total.products[place] for total in ended.values() if place in total.products]
            now = factors[0] * self.now[place] if self.plan.folded(place) else self.now[place]
            rows[place] = lax.dynamic_update_slice_in_dim(before, now, self.index * self.loop.rows(place), 0)
        factors = {leaf: self._factors(ended[leaf]) for leaf in self.carry.factors}
        scales = {
            leaf: {place: self._scales(ended[leaf], place) for place in mine}
            for leaf, mine in self.carry.scales.items()
        }
        return Carry(others, rows, factors, scales)

    def _factors(self, total: Sum[jax.Array]) -> jax.Array:
        factors = jnp.zeros_like(self.loop.only(0))
        for leaf, factor in total.weights.items():
            factors = factors + factor * self.loop.factors(self.carry, leaf)
        for n, factor in total.constants.items():
            factors = factors + factor * self.loop.only(len(self.plan.weights) + n)
        return factors

    def _scales(self, total: Sum[jax.Array], place: int) -> jax.Array:
        """How much of a product's rows, of each step, there is in some weights."""
        scales = jnp.zeros(self.loop.steps, self.carry.rows[place].dtype)
        for leaf, factor in total.weights.items():
            if place in self.plan.parts(leaf):
                scales = scales + factor * self.carry.scales[leaf][place]
        return scales.at[self.index].set(total.products.get(place, 0))

    def _gram(self, inputs: int, place: int) -> jax.Array:
        """The products of this step's inputs with those of a product, of all steps."""
        return self._of_step(self.loop.grams[inputs, self.plan.products[place].inputs])

    def _of_step(self, every: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(every, self.index, keepdims=False)


def _total(terms: Iterable[jax.Array]) -> jax.Array:
    return jnp.asarray(sum(terms))


def _computed(ops: Sequence[Op], given: dict[int, jax.Array]) -> dict[int, jax.Array]:
    """The given values and the results of these operations; no deferred weights are among them."""
    values = dict(given)
    for op in ops:
        values.update(zip(op.outputs, op.bind([values[place] for place in op.inputs]), strict=True))
    return values


def _turned(matrix: jax.Array, turn: bool) -> jax.Array:
    return matrix.T if turn else matrix
