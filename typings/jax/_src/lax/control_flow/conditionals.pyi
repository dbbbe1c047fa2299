"""The branches of `jax.lax` that polyfed uses: JAX gives `cond` no types."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

Y = TypeVar("Y")

def cond(pred: jax.Array | bool, true_fun: Callable[..., Y], false_fun: Callable[..., Y], *operands: Any) -> Y: ...
def platform_dependent(*args: Any, default: Callable[..., Y] | None = None, **per_platform: Callable[..., Y]) -> Y: ...
