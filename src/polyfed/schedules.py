"""Values that may change from round to round: a number, or an initial value with a decay per round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decay:
    """initial * rate^round, as in `lr = {initial = 0.1, rate = 0.99}`."""

    initial: float
    rate: float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Inverse:
    """scale / (round + offset): the O(1/t) schedules of the theorems."""

    scale: float
    offset: float


Schedule = float | Decay | Inverse


def at(schedule: Any, round: jax.Array) -> Any:
    """The schedule's value in this round (the first round is 0)."""
    if isinstance(schedule, Decay):
        return schedule.initial * jnp.power(schedule.rate, round.astype(jnp.result_type(float)))
    if isinstance(schedule, Inverse):
        return schedule.scale / (round + schedule.offset)
    return schedule
