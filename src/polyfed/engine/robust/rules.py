"""Rules that make one upload of many, of which some may be an attacker's; pure, for simulated and deployed servers.

Uploads come as a matrix with a row per client, `counted` says which rows there are, and `weight` how much each counts.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

SLACK = 1e-6
"""What rounding may do to a sum of weights."""
STEPS, CLOSE = 200, 8
"""The most steps towards a geometric median; it is reached where a step is this many roundings of what it moves."""

Rule = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, int], jax.Array]


def withstood(attackers: float, count: jax.Array) -> jax.Array:
    """How many of `count` uploads a rule is to withstand: a whole number says it, a share is rounded down."""
    if isinstance(attackers, int):
        return jnp.minimum(attackers, count)
    return jnp.floor(attackers * count + 1e-4).astype(count.dtype)


def mean(rows: jax.Array, weight: jax.Array, counted: jax.Array, attackers: jax.Array, keep: int) -> jax.Array:
    """sum_i w_i x_i / sum_i w_i. One attacker moves it anywhere."""
    weight = jnp.where(counted, weight, 0)
    total = jnp.sum(weight)
    rows = jnp.where(counted[:, None], rows, 0)
    return weight @ rows / jnp.where(total > 0, total, 1)


def median(rows: jax.Array, weight: jax.Array, counted: jax.Array, attackers: jax.Array, keep: int) -> jax.Array:
    """In each coordinate the value with half of the weight on either side; of two such values, their mean.

    Yin et al. 2018, Definition 1, with weights.
    """
    rows, reached, total = _in_order(rows, weight, counted)
    below, above = (0.5 - SLACK) * total, (0.5 + SLACK) * total
    lower, upper = jnp.argmax(reached >= below, axis=0), jnp.argmax(reached > above, axis=0)

    def at(place: jax.Array) -> jax.Array:
        return jnp.take_along_axis(rows, place[None], axis=0)[0]

    return jnp.where(jnp.sum(counted) > 0, 0.5 * (at(lower) + at(upper)), 0)


def trimmed_mean(rows: jax.Array, weight: jax.Array, counted: jax.Array, attackers: jax.Array, keep: int) -> jax.Array:
    """In each coordinate the mean of what is left after so many of the smallest and of the largest values are cut.

    Yin et al. 2018, Definition 2. With weights, that share of the weight is cut at either end.
    """
    count = jnp.sum(counted)
    share = jnp.minimum(attackers / jnp.maximum(count, 1), 0.5)
    rows, reached, total = _in_order(rows, weight, counted)
    before = jnp.concatenate([jnp.zeros_like(reached[:1]), reached[:-1]])
    low, high = share * total, (1 - share) * total
    left = jnp.minimum(reached, high) - jnp.maximum(before, low)
    left = jnp.where(left > SLACK * (reached - before), left, 0)  # a rounding of what is cut must not count
    cut = jnp.sum(jnp.where(left > 0, left * rows, 0), axis=0) / jnp.maximum(jnp.sum(left, axis=0), 1e-30)
    return jnp.where(2 * attackers < count, cut, 0)


def krum(rows: jax.Array, weight: jax.Array, counted: jax.Array, attackers: jax.Array, keep: int) -> jax.Array:
    """The upload that is closest to the n - f - 2 nearest others; with `keep` above 1, the mean of so many such.

    Blanchard et al. 2017, section 4, and its variant Multi-Krum.
    """
    rows, far = jnp.where(counted[:, None], rows, 0), jnp.asarray(jnp.inf, rows.dtype)

    def from_others(place: jax.Array) -> jax.Array:
        away = jnp.sum(jnp.square(rows - rows[place]), axis=1)
        away = jnp.where(counted & (jnp.arange(len(rows)) != place), away, far)
        near = jnp.sort(jnp.where(jnp.isnan(away), far, away))
        return jnp.sum(jnp.where(jnp.arange(len(rows)) < jnp.maximum(count - attackers - 2, 1), near, 0))

    count = jnp.sum(counted)
    order = jnp.lexsort((lax.map(from_others, jnp.arange(len(rows))), ~counted))
    chosen = jnp.zeros(len(rows), bool).at[order[:keep]].set(True) & counted
    return mean(rows, weight, chosen, attackers, keep)


def geometric_median(
    rows: jax.Array, weight: jax.Array, counted: jax.Array, attackers: jax.Array, keep: int
) -> jax.Array:
    """argmin_z sum_i w_i |z - x_i|, by Weiszfeld's steps from the coordinates' medians.

    Pillutla, Kakade, Harchaoui 2022, Algorithm 2.
    """
    weight, rows = jnp.where(counted, weight, 0), jnp.where(counted[:, None], rows, 0)
    rounding = jnp.finfo(rows.dtype).eps
    start = median(rows, weight, counted, attackers, keep)
    spread = median(_away(rows, start)[:, None], weight, counted, attackers, keep)[0]
    least = jnp.maximum(rounding * spread, jnp.finfo(rows.dtype).tiny)

    def step(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        number, z, _ = carry
        pull = weight / jnp.maximum(_away(rows, z), least)
        new = mean(rows, pull, counted, attackers, keep)
        return number + 1, new, jnp.sqrt(jnp.sum(jnp.square(new - z)))

    def going(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        number, _, moved = carry
        return (number < STEPS) & (moved > CLOSE * rounding * spread)

    return lax.while_loop(going, step, (jnp.int32(0), start, jnp.asarray(jnp.inf, rows.dtype)))[1]


RULES: dict[str, Rule] = {
    "mean": mean,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "geometric_median": geometric_median,
}


def lengths(rows: jax.Array) -> jax.Array:
    """The norm of each row."""
    return jnp.sqrt(jnp.sum(jnp.square(rows), axis=1))


def middle(values: jax.Array, counted: jax.Array) -> jax.Array:
    """The median of the values that count."""
    return median(values[:, None], jnp.ones_like(values), counted, jnp.int32(0), 1)[0]


def shortened(rows: jax.Array, limit: jax.Array) -> jax.Array:
    """The rows, each scaled to the limit where it is longer."""
    length = lengths(rows)
    factor = jnp.where(length > limit, limit / jnp.where(length > 0, length, 1), 1)
    return jnp.where(factor[:, None] < 1, factor[:, None] * rows, rows)


def _away(rows: jax.Array, point: jax.Array) -> jax.Array:
    return lengths(rows - point)


def _in_order(rows: jax.Array, weight: jax.Array, counted: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Each coordinate's values sorted, the weight up to each of them, and all of it; who does not count comes last."""
    weight = jnp.where(counted, weight, 0).astype(rows.dtype)
    rows = jnp.where(counted[:, None], rows, jnp.inf)
    ordered, weights = lax.sort((rows, jnp.broadcast_to(weight[:, None], rows.shape)), dimension=0, num_keys=1)
    reached = jnp.cumsum(weights, axis=0)
    return ordered, reached, reached[-1]
