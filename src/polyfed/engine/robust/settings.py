"""How a server that sees single uploads makes one of them: the section [aggregate] of a config."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from polyfed.core import trees
from polyfed.core.errors import PolyfedError, settings_with_own_names, suggestion
from polyfed.core.files import JsonObject
from polyfed.core.trees import Tree
from polyfed.engine.robust import rules

RuleName = Literal["mean", "median", "trimmed_mean", "krum", "geometric_median"]
WINDOW = 20
"""The past rounds whose median norms make the bound."""


class Pooled(NamedTuple):
    """What a rule makes of single uploads."""

    values: Tree
    """the one upload in place of their mean"""
    weight: jax.Array
    """the sum of what they count"""
    uploads: jax.Array
    """how many there were: those that were finite"""
    norm: jax.Array
    """the median of their norms; NaN where there was none"""
    limit: jax.Array
    """the longest that an upload could be; infinite without a bound"""


@settings_with_own_names
@dataclass(frozen=True)
class Aggregate:
    """The rule by which a server that sees single uploads makes one of them."""

    rule: RuleName
    """"median" or "trimmed_mean" of each coordinate, "krum", "geometric_median", or "mean" """
    attackers: float = 0.2
    """how many "trimmed_mean" and "krum" are to withstand: a share of a round's uploads, or a whole number of them"""
    keep: int = 1
    """for "krum": take the mean of so many uploads, the best ones (Multi-Krum)"""
    bound: float | Literal["median"] | None = None
    """the largest norm of an upload, a longer one is scaled; "median": `factor` times the median of past norms"""
    factor: float = 2.0
    """for bound = "median": how many times that median"""
    weighted: bool = False
    """whether clients count with their weights; by default all count the same, whatever weight they claim"""

    def check(self) -> None:
        """Refuse values that make no sense, with a sentence that names them."""
        if self.rule not in rules.RULES:
            raise PolyfedError(f"unknown aggregate.rule '{self.rule}'{suggestion(str(self.rule), rules.RULES)}")
        whole = isinstance(self.attackers, int) and not isinstance(self.attackers, bool)
        if not ((whole and self.attackers >= 0) or (isinstance(self.attackers, float) and 0 <= self.attackers < 0.5)):
            raise PolyfedError(
                f"aggregate.attackers must be a share below 0.5 or a whole number, found {self.attackers!r}"
            )
        if isinstance(self.keep, bool) or not isinstance(self.keep, int) or self.keep < 1:
            raise PolyfedError(f"aggregate.keep must be a whole number, at least 1, found {self.keep!r}")
        if self.bound not in (None, "median") and not _above_zero(self.bound):
            raise PolyfedError(f"aggregate.bound must be a number above 0 or 'median', found {self.bound!r}")
        if not _above_zero(self.factor):
            raise PolyfedError(f"aggregate.factor must be a number above 0, found {self.factor!r}")
        if not isinstance(self.weighted, bool):
            raise PolyfedError(f"aggregate.weighted must be true or false, found {self.weighted!r}")

    def check_cohort(self, size: int) -> None:
        """Refuse cohorts that are too small for what the rule is to withstand."""
        count = int(rules.withstood(self.attackers, jnp.int32(size)))
        needed = {"krum": 2 * count + 3, "trimmed_mean": 2 * count + 1}.get(self.rule, 1)
        if size < needed:
            raise PolyfedError(
                f"aggregate.rule = '{self.rule}' withstands {count} attackers among at least {needed} uploads, and a "
                f"round has {size}"
            )
        if self.rule == "krum" and self.keep > size - count:
            raise PolyfedError(f"aggregate.keep must be at most {size - count}, found {self.keep}")

    def limit(self, norms: jax.Array, counted: jax.Array, past: jax.Array) -> jax.Array:
        """The longest that an upload may be: by the medians of past rounds or, in the first one, by that of its own."""
        if self.bound is None:
            return jnp.asarray(jnp.inf, norms.dtype)
        if self.bound != "median":
            return jnp.asarray(self.bound, norms.dtype)
        known = ~jnp.isnan(past)
        now = rules.middle(norms, counted)
        return self.factor * jnp.where(jnp.any(known), rules.middle(jnp.nan_to_num(past), known), now)

    def pooled(self, uploads: Tree, weight: jax.Array, counted: jax.Array, past: jax.Array) -> Pooled:
        """One upload of many. Arrays of `uploads` have a row for each, and so have their weights and who counts.

        Uploads are their values as such, not multiplied by the weights. `past`: the median norms of up to `WINDOW`
        rounds before, NaN where there was none.
        """
        leaves, structure = jax.tree.flatten(uploads)
        real = weight.dtype
        size = len(counted)
        flat = [leaf.reshape(size, -1).astype(real) for leaf in leaves]
        rows = jnp.concatenate(flat, axis=1) if flat else jnp.zeros((size, 0), real)
        counted = counted & jnp.all(jnp.isfinite(rows), axis=1) & jnp.isfinite(weight) & (weight >= 0)
        weight = jnp.where(counted, weight, 0) if self.weighted else counted.astype(real)
        norms = rules.lengths(rows)
        limit = self.limit(norms, counted, past)
        if self.bound is not None:
            rows = rules.shortened(rows, limit)
        count = jnp.sum(counted, dtype=jnp.int32)
        attackers = rules.withstood(self.attackers, count)
        one = rules.RULES[self.rule](rows, weight, counted, attackers, self.keep)
        parts = jnp.split(one, np.cumsum([part.shape[1] for part in flat])[:-1]) if flat else []
        values = [part.reshape(leaf.shape[1:]).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
        norm = jnp.where(count > 0, rules.middle(norms, counted), jnp.nan)
        return Pooled(jax.tree.unflatten(structure, values), jnp.sum(weight), count, norm, limit)

    def of(self, uploads: Sequence[Tree], weights: Sequence[float] | np.ndarray, past: Sequence[float] = ()) -> Pooled:
        """The same for a server that has received its uploads one by one; `past`: `Pooled.norm` of earlier rounds."""
        if not uploads or len(uploads) != len(weights):
            raise PolyfedError(f"expected uploads with a weight each, found {len(uploads)} and {len(weights)} weights")
        stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *uploads)
        real = jnp.result_type(float)
        counted = jnp.ones(len(uploads), bool)
        return self.pooled(stacked, jnp.asarray(weights, real), counted, window(past, real))


def window(past: Sequence[float], real: DTypeLike) -> jax.Array:
    """The last rounds' median norms; NaN stands for rounds before the first."""
    kept = list(past)[-WINDOW:]
    return jnp.asarray([np.nan] * (WINDOW - len(kept)) + kept, real)


def norm_of(upload: Tree) -> float:
    """The norm of one upload, all its numbers as one vector, in double precision."""
    return float(np.sqrt(sum(float(np.sum(np.square(np.asarray(x, np.float64)))) for x in jax.tree.leaves(upload))))


def norm_limit(bound: float | str | None, past: Sequence[float], factor: float = 2.0) -> float:
    """The longest that an upload may be: fixed, `factor` times the median of past norms, or infinite."""
    if bound is None or (bound == "median" and not len(past)):
        return float("inf")
    return factor * float(np.median(past)) if bound == "median" else float(bound)


def shorter(upload: Tree, limit: float) -> Tree:
    """The upload, scaled to the limit if it is longer."""
    length = norm_of(upload)
    return upload if length <= limit else trees.scale(limit / length, upload)


def aggregate_settings(given: JsonObject | str | Aggregate | None, where: str = "") -> Aggregate | None:
    """Check the section [aggregate], or the argument `aggregate`: a rule's name alone takes the defaults."""
    if given is None or isinstance(given, Aggregate):
        settings = given
    else:
        section = {"rule": given} if isinstance(given, str) else given
        settings = read_section(section, Aggregate, "aggregate", where)
    if settings is not None:
        named(settings.check, where)
    return settings


def read_section(section: Any, kind: type[Any], name: str, where: str) -> Any:
    """A section as the dataclass that has its keys."""
    begin = f"{where}: " if where else ""
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{begin}{name} must be a section, [{name}]")
    known = {field.name: field for field in dataclasses.fields(kind)}
    for key in section:
        if key not in known:
            raise PolyfedError(f"{begin}unknown key {name}.{key}{suggestion(key, known)}")
    first = next(iter(known))
    if first not in section:
        raise PolyfedError(f"{begin}{name}.{first} is missing")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in section.items()})


def named(check: Callable[[], None], where: str) -> None:
    """Within a config, what a check refuses begins with the config's name."""
    try:
        check()
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}" if where else str(error)) from None


def _above_zero(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
