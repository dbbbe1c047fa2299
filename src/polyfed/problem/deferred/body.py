"""A loop's body as a list of operations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var
from jax.lax import PrecisionLike

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr"}
"""Operations that call a function, and the option that holds it."""
SINGLE = ("pure_callback", "ffi_call", "rng_uniform", "rng_bit_generator")
"""Operations that may give another result when repeated, or when many are done at once."""


def aval_of(atom: Var | Literal) -> ShapedArray:
    """Shape and type of a variable or a literal. What has neither, such as a token, is never asked for them."""
    return cast(ShapedArray, atom.aval)


@dataclass(frozen=True)
class Op:
    """An equation of the body, and the places of what goes in and comes out."""

    eqn: JaxprEqn
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    def bind(self, values: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """The results for these values."""
        bound = self.eqn.primitive.get_bind_params(self.eqn.params)
        functions, options = ((), bound) if isinstance(bound, dict) else bound  # older JAX has both
        with self.eqn.ctx.manager:
            results = self.eqn.primitive.bind(*functions, *values, **options)
        return results if self.eqn.primitive.multiple_results else [results]

    @property
    def single(self) -> bool:
        """Whether it must be done as often as the body says, one by one. So must draws with some kinds of keys."""
        kinds = [str(aval_of(var).dtype) for var in self.eqn.invars if hasattr(var.aval, "dtype")]
        return self.name in SINGLE or any(kind.startswith("key<") and kind != "key<fry>" for kind in kinds)

    @property
    def contracted(self) -> tuple[int, int] | None:
        """The axes that a product of two matrices runs over; None for other products, and those into another type."""
        (left, right), batch = self.eqn.params["dimension_numbers"]
        avals = [aval_of(var) for var in (*self.eqn.invars, *self.eqn.outvars)]
        alike = len({aval.dtype for aval in avals}) == 1 and all(len(aval.shape) == 2 for aval in avals)
        return (left[0], right[0]) if alike and len(left) == 1 and not any(map(len, batch)) else None

    @property
    def precision(self) -> PrecisionLike:
        """A product's precision, None for the default one."""
        return self.eqn.params["precision"]


class Body:
    """The operations of (index, carry) -> carry, without calls, branches for other platforms and repetitions.

    Every value has a number, its place. By place, `avals` gives shapes and types, `constants` the values that come from
    outside, and `uniform` the place of the number that fills a whole array.
    """

    def __init__(self, closed: ClosedJaxpr, platform: str) -> None:
        self.platform = platform
        self.ops: list[Op] = []
        self.avals: list[ShapedArray] = []
        self.constants: dict[int, jax.Array] = {}
        self.zeros: set[int] = set()
        self.uniform: dict[int, int] = {}
        self._places: dict[Hashable, tuple[int, ...]] = {}
        self.index, *self.carry = (self._new(aval_of(var)) for var in closed.jaxpr.invars)
        self.outputs = self._inlined(closed, [self.index, *self.carry])
        self.ops = self.before(self.outputs)

    def before(self, places: Sequence[int]) -> list[Op]:
        """The operations that these values need."""
        needed, kept = set(places), []
        for op in reversed(self.ops):
            if needed.intersection(op.outputs):
                kept.append(op)
                needed.update(op.inputs)
        return kept[::-1]

    def shape(self, place: int) -> tuple[int, ...]:
        return self.avals[place].shape

    def _new(self, aval: ShapedArray) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _constant(self, aval: ShapedArray, value: jax.Array) -> int:
        place = self._new(aval)
        self.constants[place] = value
        return place

    def _literal(self, var: Literal) -> int:
        key = (str(var.aval), np.asarray(var.val).tobytes())
        if key not in self._places:
            self._places[key] = (self._constant(aval_of(var), var.val),)
            if not np.any(var.val):
                self.zeros.update(self._places[key])
        return self._places[key][0]

    def _inlined(self, closed: ClosedJaxpr, given: Sequence[int]) -> list[int]:
        """Take over a jaxpr's equations, and return the places of its outputs."""
        places = dict(zip(closed.jaxpr.invars, given, strict=True))
        for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            places[var] = self._constant(aval_of(var), value)

        def place_of(var: Var | Literal) -> int:
            return self._literal(var) if isinstance(var, Literal) else places[var]

        for eqn in closed.jaxpr.eqns:
            inputs = tuple(map(place_of, eqn.invars))
            called, skipped = self._called(eqn)
            outputs = self._op(eqn, inputs) if called is None else self._inlined(called, inputs[skipped:])
            places.update(zip(eqn.outvars, outputs, strict=True))
        return list(map(place_of, closed.jaxpr.outvars))

    def _op(self, eqn: JaxprEqn, inputs: tuple[int, ...]) -> Sequence[int]:
        op = Op(eqn, inputs, tuple(self._new(aval_of(var)) for var in eqn.outvars))
        key: Hashable = (eqn.primitive, inputs, tuple(sorted(eqn.params.items(), key=lambda item: item[0])))
        try:
            before = None if op.single else self._places.setdefault(key, op.outputs)
        except TypeError:  # an option that has no hash
            before = None
        if before is not None and before != op.outputs:
            return before
        if op.name in ("broadcast_in_dim", "convert_element_type") and inputs[0] in self.zeros:
            self.zeros.update(op.outputs)
        if op.name == "broadcast_in_dim" and self.shape(inputs[0]) == ():
            self.uniform[op.outputs[0]] = inputs[0]
        self.ops.append(op)
        return op.outputs

    def _called(self, eqn: JaxprEqn) -> tuple[ClosedJaxpr | None, int]:
        """The function that a call calls, and how many inputs to skip for it; (None, 0) for other operations."""
        if eqn.primitive.name in CALLS:
            return eqn.params[CALLS[eqn.primitive.name]], 0
        branches = eqn.params.get("branches_platforms") if eqn.primitive.name == "cond" else None
        if not branches or any(names and {"cuda", "rocm"}.intersection(names) for names in branches):
            return None, 0  # JAX's devices say "gpu" for both
        mine = next((n for n, names in enumerate(branches) if names is None or self.platform in names), None)
        return (None, 0) if mine is None else (eqn.params["branches"][mine], 1)
