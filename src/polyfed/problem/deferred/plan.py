"""Which weights a loop can defer, and whether it gains by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.lax import PrecisionLike

from polyfed.problem.deferred.body import Body, Op
from polyfed.problem.deferred.sums import Sum, Walk

FAST, PRECISE = 200, 50
"""On an accelerator, moving a number to or from memory takes as long as so many operations of a matrix product: at the
default precision, and at a higher one."""
WORTH = 0.9
"""Weights are deferred where that takes at most this part of the time that moving them takes."""
MOST_MEMORY = 8
"""Known inputs, their products and the deferred rows may take at most so many times the memory of the weights."""
CONSTANT, KNOWN, FOUND = range(3)
"""When a value of the body is known: before the loop; before it, one for each step; in the step itself."""


class Product(NamedTuple):
    """x' g: on which side x is, its number among the known inputs, and the columns of g."""

    side: int
    inputs: int
    width: int


class Read(NamedTuple):
    """x W: on which side x is, its number among the known inputs, and the weights that are read."""

    side: int
    inputs: int
    weights: tuple[int, ...]


@dataclass
class Deferral:
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
    """by the place of what comes out"""
    reads: dict[int, Read] = field(default_factory=dict)
    """likewise"""
    precisions: set[PrecisionLike] = field(default_factory=set)
    """the precisions of all these products"""
    written: int = 0
    """how many sums a step turns into matrices"""
    ended: dict[int, Sum[_Value]] = field(default_factory=dict)
    """the weights after a step"""

    def rows(self, number: int) -> int:
        """The rows of a step's known inputs."""
        place, across = self.inputs[number]
        return self.body.shape(place)[1 if across else 0]

    def sizes(self, leaf: int) -> tuple[int, ...]:
        """(inputs, outputs) of a layer."""
        shape = self.body.shape(self.body.carry[leaf])
        return shape[::-1] if leaf in self.turned else shape

    def kind(self, leaf: int) -> np.dtype:
        return self.body.avals[self.body.carry[leaf]].dtype

    def steady(self, leaf: int) -> bool:
        """Whether a step adds products to the weights, and does nothing else."""
        return self.ended[leaf].weights == {leaf: 1} and not self.ended[leaf].constants

    @property
    def kept(self) -> list[int]:
        """The products that some weights contain after a step: their rows g are kept."""
        return [place for place in self.products if any(place in total.products for total in self.ended.values())]

    def mixed(self, leaf: int) -> list[int]:
        """The weights that these weights may come to contain, themselves first."""
        leaves = [leaf]
        for each in leaves:
            leaves += [other for other in self.ended[each].weights if other not in leaves]
        return leaves

    def parts(self, leaf: int) -> list[int]:
        """The kept products that these weights may contain."""
        mixed_in = {place for each in self.mixed(leaf) for place in self.ended[each].products}
        return [place for place in self.kept if place in mixed_in]

    def sources(self, leaf: int) -> list[int]:
        """The numbers of the matrices before the loop (weights, then constants) that these weights may contain."""
        mixed = self.mixed(leaf)
        constants = {number for each in mixed for number in self.ended[each].constants}
        return [self.weights.index(each) for each in mixed] + [len(self.weights) + n for n in sorted(constants)]

    def folded(self, place: int) -> bool:
        """Whether a product's rows are kept with their factor: only one layer adds it, and never scales it later."""
        owners = [leaf for leaf, total in self.ended.items() if place in total.products]
        return len(owners) == 1 and all(
            total.weights == {leaf: 1} if leaf in owners else owners[0] not in total.weights
            for leaf, total in self.ended.items()
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of known inputs whose rows are multiplied: those of a read, and those of a product before it."""
        made = dict.fromkeys(product.inputs for product in self.products.values())
        return [(a, b) for a in self.read for b in made]

    @property
    def read(self) -> list[int]:
        """The known inputs that weights are read with."""
        return list(dict.fromkeys(read.inputs for read in self.reads.values()))

    def connected(self) -> set[int]:
        """The weights that are read, and those that are mixed with them; of several types, those that hold most."""
        groups = [{leaf} for leaf in self.weights]
        for leaf, total in self.ended.items():
            together = [group for group in groups if group & {leaf, *total.weights}]
            groups = [group for group in groups if group not in together] + [set().union(*together)]
        seen = {leaf for read in self.reads.values() for leaf in read.weights}
        kinds: dict[tuple[int, np.dtype], set[int]] = {}
        for leaf in (leaf for group in groups if group & seen for leaf in group):
            kinds.setdefault((self.sizes(leaf)[0], self.kind(leaf)), set()).add(leaf)
        return max(kinds.values(), key=lambda leaves: sum(map(self.numbers, leaves)), default=set())

    def numbers(self, leaf: int) -> int:
        inputs, outputs = self.sizes(leaf)
        return inputs * outputs

    def gains(self, steps: int) -> bool:
        """Whether that takes less time, in numbers moved and operations of products, and not too much memory."""
        widths = [self.sizes(leaf)[1] for leaf in self.weights]
        widths += [self.body.shape(place)[0 if across else 1] for place, across in self.constants]
        depth, numbers = self.sizes(self.weights[0])[0], sum(map(self.numbers, self.weights))
        single = self.precisions == {None} and self.kind(self.weights[0]).itemsize <= 4
        every = [steps * self.rows(number) for number in range(len(self.inputs))]

        def cost(moved: int, multiplied: int) -> float:
            return moved + 2 * multiplied / (FAST if single else PRECISE)

        def parts(leaves: Iterable[int]) -> list[tuple[int, int]]:
            products = [self.products[place] for leaf in leaves for place in self.parts(leaf)]
            return [(every[product.inputs], product.width) for product in products]

        usual, step = 2.0 * numbers, 0.0
        for product in self.products.values():
            usual += cost(0, self.rows(product.inputs) * depth * product.width)
        for read in self.reads.values():
            own = self.rows(read.inputs)
            usual += cost(sum(map(self.numbers, read.weights)), own * max(map(self.numbers, read.weights)))
            step += sum(
                cost(rows * (wide + own) + 2 * own * wide, own * rows * wide) for rows, wide in parts(read.weights)
            )
        step += self.written * cost(2 * numbers, max(map(self.rows, range(len(self.inputs)))) * numbers)
        once = sum(2.0 * rows * depth for rows in every)
        for a, b in self.pairs:
            once += cost((every[a] + every[b]) * depth + every[a] * every[b], every[a] * every[b] * depth)
        for rows, wide in ((every[number], wide) for number in self.read for wide in widths):
            once += cost(depth * wide + rows * (depth + wide), rows * depth * wide)
        for rows, wide in parts(self.weights):
            once += cost(2 * depth * wide + rows * (depth + wide), rows * depth * wide)
        memory = sum(every) * depth + sum(every[a] * every[b] for a, b in self.pairs)
        memory += sum(every[number] for number in self.read) * sum(widths)
        memory += sum(every[self.products[place].inputs] * self.products[place].width for place in self.kept)
        return steps * step + once <= WORTH * steps * usual and memory <= MOST_MEMORY * numbers


def planned(body: Body, steps: int) -> Deferral | None:
    """What to defer; None where nothing can be, or where nothing is gained by it."""
    weights = {leaf for leaf, (place, ended) in enumerate(_ends(body)) if place != ended and _is_matrix(body, place)}
    turned: set[int] = set()
    while weights:
        plan = Deferral(body, sorted(weights), set(turned))
        analysis = _Analysis(plan)
        analysis.run()
        if analysis.unfit or analysis.turned:
            weights, turned = weights - (analysis.unfit - analysis.turned), turned | analysis.turned
        elif plan.connected() != weights:
            weights = plan.connected()
        else:
            return plan if len(plan.precisions) == 1 and plan.gains(steps) else None
    return None


def _ends(body: Body) -> list[tuple[int, int]]:
    """The places of every leaf of the carry, before and after a step."""
    return list(zip(body.carry, body.outputs, strict=True))


def _is_matrix(body: Body, place: int) -> bool:
    """Whether it is a matrix, of a type in which products x x' overflow no sooner than products x W."""
    kind = body.avals[place].dtype
    return len(body.shape(place)) == 2 and jnp.issubdtype(kind, jnp.floating) and jnp.finfo(kind).nexp >= 8


@dataclass(frozen=True)
class _Value:
    """All that an analysis knows of a value or a factor: the stage at which it is known."""

    level: int

    def __mul__(self, other: object) -> _Value:
        return _Value(FOUND)

    __rmul__ = __add__ = __radd__ = __rtruediv__ = __mul__


class _Analysis(Walk[_Value]):
    """Finds which operations read deferred weights, and which make products that are added to them."""

    def __init__(self, plan: Deferral) -> None:
        super().__init__(plan.body)
        self.plan = plan
        self.unfit: set[int] = set()
        """weights that are used in a way that deferred ones cannot be"""
        self.turned: set[int] = set()
        """weights whose inputs turn out to be on the second axis"""
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
                self.unfit.add(leaf)

    def _set(self, places: Collection[int], level: int) -> list[_Value]:
        self.env.update(dict.fromkeys(places, _Value(level)))
        {CONSTANT: self.plan.fixed, KNOWN: self.plan.known}.get(level, set()).update(places)
        return [_Value(level)] * len(places)

    def passed(self, value: _Value) -> _Value:
        return _Value(FOUND)

    def plain(self, op: Op, values: list[_Value]) -> Sequence[_Value]:
        level = FOUND if op.single else max((value.level for value in values), default=CONSTANT)
        return self._set(op.outputs, level)

    def product(self, op: Op) -> Sum[_Value] | None:
        levels = [self.value(place).level for place in op.inputs]
        if sorted(levels) != [KNOWN, FOUND] or (axes := op.contracted) is None:
            return None
        side = levels.index(KNOWN)
        x, g = (self.body.shape(op.inputs[n])[1 - axes[n]] for n in (side, 1 - side))
        if (x, g) not in map(self.plan.sizes, self.plan.weights):
            return None
        number = self._inputs(op.inputs[side], across=axes[side] == 1)
        self.plan.products[op.outputs[0]] = Product(side, number, g)
        self.plan.precisions.add(op.precision)
        return Sum(products={op.outputs[0]: 1}, flipped=side == 1)

    def read(self, op: Op, total: Sum[_Value]) -> _Value:
        side = 1 if isinstance(self.env[op.inputs[0]], Sum) else 0
        if (axes := op.contracted) is None or self.value(op.inputs[side]).level != KNOWN:
            self.unfit.update(total.weights)
        elif axes[1 - side] != (1 if total.flipped else 0):
            again = self.plan.turned.intersection(total.weights)
            (self.unfit if again else self.turned).update(total.weights)
        else:
            number = self._inputs(op.inputs[side], across=axes[side] == 0)
            self.plan.reads[op.outputs[0]] = Read(side, number, tuple(total.weights))
            self.plan.precisions.add(op.precision)
        return _Value(FOUND)

    def dense(self, total: Sum[_Value]) -> _Value:
        self.unfit.update(total.weights)
        self.plan.written += 1
        return _Value(FOUND)

    def constant(self, place: int, flipped: bool) -> int | None:
        return _numbered(self.plan.constants, (place, flipped)) if place in self.plan.fixed else None

    def _inputs(self, place: int, across: bool) -> int:
        """The number of known inputs; a matrix and its transpose are the same."""
        while (turned := self.turns.get(place)) is not None:
            place, across = turned, not across
        return _numbered(self.plan.inputs, (place, across))


def _numbered(items: list[tuple[int, bool]], item: tuple[int, bool]) -> int:
    """The number of an item, which is added where it is new."""
    if item not in items:
        items.append(item)
    return items.index(item)
