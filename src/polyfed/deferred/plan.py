"""Which weights a loop can defer, and whether it gains by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp

from polyfed.deferred.body import Body, Op
from polyfed.deferred.sums import Sum, UnfitError, Walk

OPERATIONS_PER_NUMBER = 200
"""Operations of a matrix product that take as long as moving a number to or from an accelerator's memory."""
MOST_MEMORY = 8
"""The most that known inputs, their products and the deferred rows may take, in numbers for each of the weights'."""
CONSTANT, KNOWN, FOUND = range(3)
"""When a value of the body is there: before the loop; before it, one for each step; in the step itself."""


@dataclass
class Plan:
    """Which weights to defer, and what the body does with them."""

    body: Body
    weights: list[int]
    """the leaves of the carry that are deferred"""
    turned: set[int]
    """those of them whose inputs are on the second axis"""
    fixed: set[int] = field(default_factory=set)
    """the values that are there before the loop"""
    known: set[int] = field(default_factory=set)
    """those that are there before it, one for each step"""
    inputs: list[tuple[int, bool]] = field(default_factory=list)
    """the known inputs: a value, and whether its rows are on the second axis"""
    constants: list[tuple[int, bool]] = field(default_factory=list)
    """the matrices that are added to weights: a value, and whether it is the transpose"""
    products: dict[int, Product] = field(default_factory=dict)
    """products x' g, by the place of what comes out"""
    reads: dict[int, Read] = field(default_factory=dict)
    """products x W, likewise"""
    precisions: set[Any] = field(default_factory=set)
    """those of all these products"""
    written: int = 0
    """how many sums a step makes matrices of"""
    ended: dict[int, Sum] = field(default_factory=dict)
    """the weights after a step"""

    def rows(self, number: int) -> int:
        """The rows of a step's known inputs."""
        place, across = self.inputs[number]
        return self.body.shape(place)[1 if across else 0]

    def sizes(self, leaf: int) -> tuple[int, ...]:
        """(inputs, outputs) of a layer."""
        shape = self.body.shape(self.body.carry[leaf])
        return shape[::-1] if leaf in self.turned else shape

    def width(self, place: int) -> int:
        """The outputs of the layer that a product is added to."""
        return next(self.sizes(leaf)[1] for leaf, total in self.ended.items() if place in total.products)

    def steady(self, leaf: int) -> bool:
        """Whether a step adds products to the weights, and does nothing else."""
        return self.ended[leaf].weights == {leaf: 1} and not self.ended[leaf].constants

    @property
    def kept(self) -> list[int]:
        """The products that some weights have in them after a step: their rows g are kept."""
        return [place for place in self.products if any(place in total.products for total in self.ended.values())]

    def parts(self, leaf: int) -> list[int]:
        """The kept products that some weights may have in them, their own and those of weights that are mixed in."""
        mixed, found = [leaf], set()
        for each in mixed:
            found |= self.ended[each].products.keys()
            mixed += [other for other in self.ended[each].weights if other not in mixed]
        return [place for place in self.kept if place in found]

    def folded(self, place: int) -> bool:
        """Whether the rows of a product are kept with their factor: one layer alone adds it, and never scales it."""
        owners = [leaf for leaf, total in self.ended.items() if place in total.products]
        return len(owners) == 1 and all(
            total.weights == {leaf: 1} if leaf in owners else owners[0] not in total.weights
            for leaf, total in self.ended.items()
        )

    def gains(self, steps: int) -> bool:
        """Whether fewer numbers move, operations of products counted as some, and memory is not too much."""
        sizes = [self.sizes(leaf) for leaf in self.weights]
        depth, wide = sizes[0][0], max(outputs for _, outputs in sizes)
        numbers, matrices = depth * wide, len(sizes) + len(self.constants)

        def cost(moved: int, multiplied: int) -> float:
            return moved + 2 * multiplied / OPERATIONS_PER_NUMBER

        def rows(place: int) -> int:
            return steps * self.rows(self.products[place].inputs)

        read = [self.rows(read.inputs) for read in self.reads.values()]
        made = [self.rows(product.inputs) for product in self.products.values()]
        usual = cost((len(read) + 2 * len(sizes)) * numbers, (sum(read) + sum(made)) * numbers)
        step = self.written * cost(2 * numbers, sum(made) * numbers)
        for read in self.reads.values():
            own = self.rows(read.inputs)
            parts = [rows(place) for leaf in read.weights for place in self.parts(leaf)]
            step += sum(cost(part * (wide + own) + 2 * own * wide, own * part * wide) for part in parts)
        every = [steps * self.rows(number) for number in range(len(self.inputs))]
        once = sum(cost(2 * count * depth, 0) for count in every)
        for a, b in self.pairs:
            once += cost((every[a] + every[b]) * depth + every[a] * every[b], every[a] * every[b] * depth)
        for read in {read.inputs for read in self.reads.values()}:
            once += matrices * cost(numbers + every[read] * (depth + wide), every[read] * numbers)
        for part in (rows(place) for leaf in self.weights for place in self.parts(leaf)):
            once += cost(2 * numbers + part * (depth + wide), part * numbers)
        memory = sum(every) * (depth + matrices * wide) + sum(every[a] * every[b] for a, b in self.pairs)
        memory += sum(rows(place) * wide for place in self.kept)
        return steps * step + once < steps * usual and memory <= MOST_MEMORY * numbers * len(sizes)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The known inputs whose rows are multiplied with each other: those of a read, and of a product before it."""
        read = dict.fromkeys(read.inputs for read in self.reads.values())
        return [(a, b) for a in read for b in dict.fromkeys(product.inputs for product in self.products.values())]


class Product(NamedTuple):
    """x' g: on which side x is, and its number among the known inputs."""

    side: int
    inputs: int


class Read(NamedTuple):
    """x W, likewise, and the weights that are read."""

    side: int
    inputs: int
    weights: tuple[int, ...]


def planned(body: Body, steps: int) -> Plan | None:
    """The plan; None where nothing can be deferred, or nothing is gained by it."""
    weights = {leaf for leaf, (place, ended) in enumerate(_ends(body)) if place != ended and _is_matrix(body, place)}
    turned: set[int] = set()
    while weights:
        plan = Plan(body, sorted(weights), set(turned))
        try:
            _Analysis(plan).run()
        except UnfitError as unfit:
            if unfit.turned and not unfit.weights & turned:
                turned |= unfit.weights
            else:
                weights -= unfit.weights
            continue
        kinds = {(plan.sizes(leaf)[0], body.avals[body.carry[leaf]].dtype) for leaf in weights}
        return plan if plan.reads and len(kinds) == len(plan.precisions) == 1 and plan.gains(steps) else None
    return None


def _ends(body: Body) -> list[tuple[int, int]]:
    """Of every leaf of the carry, its place before and after a step."""
    return list(zip(body.carry, body.outputs, strict=True))


def _is_matrix(body: Body, place: int) -> bool:
    return len(body.shape(place)) == 2 and jnp.issubdtype(body.avals[place].dtype, jnp.floating)


@dataclass(frozen=True)
class _Value:
    """A value, or a factor, of which only is known when it is there."""

    level: int

    def __mul__(self, other: Any) -> _Value:
        return _Value(FOUND)

    __rmul__ = __add__ = __radd__ = __rtruediv__ = __mul__


class _Analysis(Walk):
    """Finds which operations read deferred weights, and which make products that are added to them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.body)
        self.plan = plan
        matrices = (op for op in plan.body.ops if op.name == "transpose" and len(op.eqn.params["permutation"]) == 2)
        self.turns = {op.outputs[0]: op.inputs[0] for op in matrices if op.eqn.params["permutation"][0] == 1}

    def run(self) -> None:
        plan, body = self.plan, self.body
        self._set(body.constants, CONSTANT)
        self._set([body.index], KNOWN)
        for leaf, (place, ended) in enumerate(_ends(body)):
            if leaf in plan.weights:
                self.env[place] = Sum({leaf: 1}, flipped=leaf in plan.turned)
            else:
                self._set([place], CONSTANT if place == ended else FOUND)
        self.walk(body.ops)
        for leaf, place in enumerate(body.outputs):
            total = self.env[place]
            if leaf not in plan.weights:
                self.value(place)
            elif isinstance(total, Sum) and total.flipped == (leaf in plan.turned):
                plan.ended[leaf] = total
            else:
                raise UnfitError([leaf])

    def _set(self, places: Any, level: int) -> list[_Value]:
        self.env.update(dict.fromkeys(places, _Value(level)))
        {CONSTANT: self.plan.fixed, KNOWN: self.plan.known}.get(level, set()).update(places)
        return [_Value(level)] * len(places)

    def plain(self, op: Op, values: list[_Value]) -> Sequence[_Value]:
        return self._set(op.outputs, max((value.level for value in values), default=CONSTANT))

    def product(self, op: Op) -> Sum | None:
        levels = [self.env[place].level for place in op.inputs]
        if sorted(levels) != [KNOWN, FOUND] or (axes := op.contracted) is None:
            return None
        side = levels.index(KNOWN)
        x, g = (self.body.shape(op.inputs[n])[1 - axes[n]] for n in (side, 1 - side))
        if (x, g) not in map(self.plan.sizes, self.plan.weights):
            return None
        number = self._inputs(op.inputs[side], across=axes[side] == 1)
        self.plan.products[op.outputs[0]] = Product(side, number)
        self.plan.precisions.add(op.precision)
        return Sum(products={op.outputs[0]: 1}, flipped=side == 1)

    def read(self, op: Op, total: Sum) -> _Value:
        side = 1 if isinstance(self.env[op.inputs[0]], Sum) else 0
        if (axes := op.contracted) is None or self.env[op.inputs[side]].level != KNOWN:
            raise UnfitError(total.weights)
        if axes[1 - side] != (1 if total.flipped else 0):
            raise UnfitError(total.weights, turned=True)
        number = self._inputs(op.inputs[side], across=axes[side] == 0)
        self.plan.reads[op.outputs[0]] = Read(side, number, tuple(total.weights))
        self.plan.precisions.add(op.precision)
        return _Value(FOUND)

    def dense(self, total: Sum) -> _Value:
        if total.weights:
            raise UnfitError(total.weights)
        self.plan.written += 1
        return _Value(FOUND)

    def constant(self, place: int, flipped: bool) -> int | None:
        return _numbered(self.plan.constants, (place, flipped)) if place in self.plan.fixed else None

    def _inputs(self, place: int, across: bool) -> int:
        """The number of known inputs; a matrix and its transpose are the same."""
        while (turned := self.turns.get(place)) is not None:
            place, across = turned, not across
        return _numbered(self.plan.inputs, (place, across))


def _numbered(found: list[tuple[int, bool]], item: tuple[int, bool]) -> int:
    if item not in found:
        found.append(item)
    return found.index(item)
