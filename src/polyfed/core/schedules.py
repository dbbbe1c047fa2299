"""Values that may change as a run goes on: a number, a decay per round, or a theorem's O(1/t)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from polyfed.core.trees import Scalar


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class InverseStep:
    """step_scale / (t + step_offset), t the number of the local step: for methods that count steps, not rounds."""

    step_scale: float
    step_offset: float


Schedule = float | Decay | Inverse | InverseStep


def at(schedule: Schedule | jax.Array, round: jax.Array, step: jax.Array | None = None) -> Scalar:
    """The schedule's value in this round (the first is 0) and, where the method counts them, step (the first is 1)."""
    if isinstance(schedule, InverseStep):
        assert step is not None, "checks.stepsize refuses it where steps are not counted"
        return schedule.step_scale / (step + schedule.step_offset)
    if isinstance(schedule, Decay):
        return schedule.initial * jnp.power(schedule.rate, round.astype(jnp.result_type(float)))
    if isinstance(schedule, Inverse):
        return schedule.scale / (round + schedule.offset)
    return schedule
