"""The loops of `jax.lax` that polyfed uses: JAX gives `fori_loop` and `map` no types."""

from collections.abc import Callable
from typing import TypeVar

import jax

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")

def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Carry, Y]: ...
def while_loop(
    cond_fun: Callable[[Carry], jax.Array | bool], body_fun: Callable[[Carry], Carry], init_val: Carry
) -> Carry: ...
def fori_loop(
    lower: jax.Array | int,
    upper: jax.Array | int,
    body_fun: Callable[[jax.Array, Carry], Carry],
    init_val: Carry,
    *,
    unroll: int | bool | None = None,
) -> Carry: ...
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y: ...
