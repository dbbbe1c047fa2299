"""What stands for deferred weights in a loop's body, and which operations may be done with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from polyfed.problem.deferred.body import Body, Op


@dataclass(frozen=True)
class Sum:
    """sum_k c_k W_k + sum_b c_b C_b + sum_j c_j x_j' g_j: deferred weights, constants, and products of this step.

    The parts have the factors c: of leaves of the carry, of numbered constants, and of the places of products.
    `flipped`: what the body has here is its transpose.
    """

    weights: dict[int, Any] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    products: dict[int, Any] = field(default_factory=dict)
    flipped: bool = False

    def scaled(self, factor: Any) -> Sum:
        parts = ({key: value * factor for key, value in part.items()} for part in self._parts)
        return Sum(*parts, flipped=self.flipped)

    def plus(self, other: Sum) -> Sum:
        return Sum(*map(_joined, self._parts, other._parts), flipped=self.flipped)

    @property
    def _parts(self) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any]]:
        return self.weights, self.constants, self.products


def _joined(a: dict[int, Any], b: dict[int, Any]) -> dict[int, Any]:
    return a | {key: a[key] + value if key in a else value for key, value in b.items()}


class Walk(ABC):
    """The body, operation by operation, on values of some kind and on sums."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.env: dict[int, Any] = {}
        self._made: dict[int, Any] = {}

    def walk(self, ops: Sequence[Op]) -> None:
        for op in ops:
            self.env.update(zip(op.outputs, self._out(op), strict=True))

    def value(self, place: int) -> Any:
        """A value; a sum is made a matrix, once."""
        if not isinstance(self.env[place], Sum):
            return self.env[place]
        if place not in self._made:
            self._made[place] = self.dense(self.env[place])
        return self._made[place]

    def _out(self, op: Op) -> Sequence[Any]:
        given, found = [self.env[place] for place in op.inputs], None
        if any(isinstance(value, Sum) for value in given):
            found = RULES[op.name](self, op, given) if op.name in RULES else None
        elif op.name == "dot_general":
            product = self.product(op)
            found = None if product is None else [product]
        return self.plain(op, [self.value(place) for place in op.inputs]) if found is None else found

    @abstractmethod
    def plain(self, op: Op, values: list[Any]) -> Sequence[Any]:
        """An operation on values alone."""

    def passed(self, value: Any) -> Any:
        """A value that an operation hands on."""
        return value

    @abstractmethod
    def product(self, op: Op) -> Sum | None:
        """x' g of known x, if that is what the operation is."""

    @abstractmethod
    def read(self, op: Op, total: Sum) -> Any:
        """The product of known inputs with a sum that has weights in it."""

    @abstractmethod
    def dense(self, total: Sum) -> Any:
        """The matrix that a sum without weights stands for."""

    @abstractmethod
    def constant(self, place: int, flipped: bool) -> int | None:
        """The number of a matrix that is there before the loop; None for other values."""


Rule = Callable[[Walk, Op, list[Any]], Sequence[Any] | None]


def _scaled(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
    """A sum times a number."""
    side = 0 if isinstance(values[0], Sum) else 1
    number = _number(walk, op.inputs[1 - side])
    return None if number is None else [values[side].scaled(number)]


def _divided(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
    number = _number(walk, op.inputs[1])
    return None if number is None or not isinstance(values[0], Sum) else [values[0].scaled(1 / number)]


def _number(walk: Walk, place: int) -> Any:
    """A number, or the one that fills an array; None for others."""
    place = walk.body.uniform.get(place, place)
    return walk.env[place] if walk.body.shape(place) == () else None


def _added(sign: int) -> Rule:
    """A sum and another, or a matrix that is there before the loop."""

    def rule(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
        flipped = next(value.flipped for value in values if isinstance(value, Sum))
        terms = []
        for place, value in zip(op.inputs, values, strict=True):
            if isinstance(value, Sum):
                terms.append(value)
            elif place in walk.body.zeros:
                terms.append(Sum(flipped=flipped))
            elif walk.body.shape(place) == walk.body.shape(op.outputs[0]):
                number = walk.constant(place, flipped)
                terms.append(None if number is None else Sum(constants={number: 1}, flipped=flipped))
            else:
                terms.append(None)
        a, b = terms
        if a is None or b is None or a.flipped != b.flipped:
            return None
        return [a.plus(b if sign > 0 else b.scaled(-1))]

    return rule


def _same(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
    """Operations that, with these shapes and types, change nothing."""
    before, after = walk.body.avals[op.inputs[0]], walk.body.avals[op.outputs[0]]
    turns = op.eqn.params.get("dimensions") is not None  # a reshape that transposes first
    return values if not turns and (before.shape, before.dtype) == (after.shape, after.dtype) else None


def _transposed(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
    turns = tuple(op.eqn.params["permutation"]) == (1, 0)
    return [replace(values[0], flipped=values[0].flipped != turns)]


def _read(walk: Walk, op: Op, values: list[Any]) -> Sequence[Any] | None:
    sums = [value for value in values if isinstance(value, Sum)]
    return [walk.read(op, sums[0])] if len(sums) == 1 and sums[0].weights else None


RULES: dict[str, Rule] = {
    "neg": lambda walk, op, values: [values[0].scaled(-1)],
    "mul": _scaled,
    "div": _divided,
    "add": _added(1),
    "add_any": _added(1),
    "sub": _added(-1),
    "transpose": _transposed,
    "convert_element_type": _same,
    "reshape": _same,
    "copy": _same,
    "stop_gradient": _same,
    "optimization_barrier": lambda walk, op, values: [v if isinstance(v, Sum) else walk.passed(v) for v in values],
    "dot_general": _read,
}
"""What may be done with a sum. A rule that returns None leaves the operation to matrices."""
