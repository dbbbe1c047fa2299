"""What stands for deferred weights in a loop's body, and which operations may be done with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

from polyfed.problem.deferred.body import Body, Op


class Arithmetic(Protocol):
    """What a value must be able to do to be a factor in a sum."""

    def __mul__(self, other: Self | float, /) -> Self: ...
    def __rmul__(self, other: Self | float, /) -> Self: ...
    def __add__(self, other: Self | float, /) -> Self: ...
    def __radd__(self, other: Self | float, /) -> Self: ...
    def __rtruediv__(self, other: Self | float, /) -> Self: ...


V = TypeVar("V", bound=Arithmetic)
"""A value of the body: an array, or what an analysis knows of it."""


@dataclass(frozen=True)
class Sum(Generic[V]):
    """sum_k c_k W_k + sum_b c_b C_b + sum_j c_j x_j' g_j: deferred weights, constants, and products of this step.

    The parts hold the factors c: by leaf of the carry, by number of the constant, and by place of the product.
    `flipped`: the body has the transpose of this here.
    """

    weights: dict[int, V | float] = field(default_factory=dict)
    constants: dict[int, V | float] = field(default_factory=dict)
    products: dict[int, V | float] = field(default_factory=dict)
    flipped: bool = False

    def scaled(self, factor: V | float) -> Sum[V]:
        weights, constants, products = (
            {key: value * factor for key, value in part.items()}
            for part in (self.weights, self.constants, self.products)
        )
        return Sum(weights, constants, products, self.flipped)

    def plus(self, other: Sum[V]) -> Sum[V]:
        return Sum(
            _joined(self.weights, other.weights),
            _joined(self.constants, other.constants),
            _joined(self.products, other.products),
            self.flipped,
        )


def _joined(a: dict[int, V | float], b: dict[int, V | float]) -> dict[int, V | float]:
    return a | {key: a[key] + value if key in a else value for key, value in b.items()}


class Walk(ABC, Generic[V]):
    """The body, operation by operation, on values of some kind and on sums."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.env: dict[int, V | Sum[V]] = {}
        """each place's value"""
        self._made: dict[int, V] = {}

    def walk(self, ops: Sequence[Op]) -> None:
        for op in ops:
            self.env.update(zip(op.outputs, self._results(op), strict=True))

    def value(self, place: int) -> V:
        """A place's value; a sum is made a matrix, once."""
        value = self.env[place]
        if not isinstance(value, Sum):
            return value
        if place not in self._made:
            self._made[place] = self.dense(value)
        return self._made[place]

    @abstractmethod
    def plain(self, op: Op, values: list[V]) -> Sequence[V]:
        """An operation on values alone."""

    def passed(self, value: V) -> V:
        """A value that an operation hands on."""
        return value

    @abstractmethod
    def product(self, op: Op) -> Sum[V] | None:
        """x' g of known x, if that is what the operation is."""

    @abstractmethod
    def read(self, op: Op, total: Sum[V]) -> V:
        """The product of known inputs with a sum that has weights in it."""

    @abstractmethod
    def dense(self, total: Sum[V]) -> V:
        """The matrix that a sum without weights stands for."""

    @abstractmethod
    def constant(self, place: int, flipped: bool) -> int | None:
        """The number of a matrix that is there before the loop; None for other values."""

    def _results(self, op: Op) -> Sequence[V | Sum[V]]:
        given = [self.env[place] for place in op.inputs]
        results: Sequence[V | Sum[V]] | None = None
        if any(isinstance(value, Sum) for value in given):
            results = self._on_sums(op, given)
        elif op.name == "dot_general":
            product = self.product(op)
            results = None if product is None else [product]
        return self.plain(op, [self.value(place) for place in op.inputs]) if results is None else results

    def _on_sums(self, op: Op, given: list[V | Sum[V]]) -> Sequence[V | Sum[V]] | None:
        """What may be done with sums; None leaves the operation to matrices."""
        first = given[0]
        match op.name:
            case "optimization_barrier":
                return [value if isinstance(value, Sum) else self.passed(value) for value in given]
            case "dot_general":
                sums = [value for value in given if isinstance(value, Sum)]
                return [self.read(op, sums[0])] if len(sums) == 1 and sums[0].weights else None
            case "convert_element_type" | "reshape" | "copy" | "stop_gradient":
                return given if self._same(op) else None
            case "mul":
                return self._scaled(op, given)
            case "add" | "add_any" | "sub":
                total = self._added(op, given)
                return None if total is None else [total]
            case "neg" if isinstance(first, Sum):
                return [first.scaled(-1)]
            case "div" if isinstance(first, Sum):
                number = self._number(op.inputs[1])
                return None if number is None else [first.scaled(1 / number)]
            case "transpose" if isinstance(first, Sum):
                turns = tuple(op.eqn.params["permutation"]) == (1, 0)
                return [replace(first, flipped=first.flipped != turns)]
        return None

    def _scaled(self, op: Op, given: list[V | Sum[V]]) -> Sequence[Sum[V]] | None:
        """A sum times a number."""
        side = 0 if isinstance(given[0], Sum) else 1
        total, number = given[side], self._number(op.inputs[1 - side])
        return [total.scaled(number)] if isinstance(total, Sum) and number is not None else None

    def _number(self, place: int) -> V | None:
        """A number, or the one that fills an array; None for others."""
        place = self.body.uniform.get(place, place)
        number = self.env[place]
        return number if self.body.shape(place) == () and not isinstance(number, Sum) else None

    def _added(self, op: Op, given: list[V | Sum[V]]) -> Sum[V] | None:
        """A sum plus or minus another, or a matrix that is there before the loop."""
        flipped = next(value.flipped for value in given if isinstance(value, Sum))
        a, b = (self._term(op, n, value, flipped) for n, value in enumerate(given))
        if a is None or b is None or a.flipped != b.flipped:
            return None
        return a.plus(b.scaled(-1) if op.name == "sub" else b)

    def _term(self, op: Op, n: int, value: V | Sum[V], flipped: bool) -> Sum[V] | None:
        place = op.inputs[n]
        if isinstance(value, Sum):
            return value
        if place in self.body.zeros:
            return Sum(flipped=flipped)
        if self.body.shape(place) != self.body.shape(op.outputs[0]):
            return None
        number = self.constant(place, flipped)
        return None if number is None else Sum(constants={number: 1}, flipped=flipped)

    def _same(self, op: Op) -> bool:
        """Whether the operation, with these shapes and types, changes nothing."""
        before, after = self.body.avals[op.inputs[0]], self.body.avals[op.outputs[0]]
        turns = op.eqn.params.get("dimensions") is not None  # a reshape that transposes first
        return not turns and (before.shape, before.dtype) == (after.shape, after.dtype)
