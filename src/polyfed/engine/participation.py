"""Who takes part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import jax
import jax.numpy as jnp

from polyfed.core import randomness
from polyfed.core.errors import PolyfedError, settings_with_own_names
from polyfed.core.randomness import Purpose


@settings_with_own_names
@dataclass(frozen=True)
class Bernoulli:
    """Each client takes part with this probability, independently of the others."""

    probability: float


Participation = float | Bernoulli
"""1.0 all clients, a share below 1, a whole number of clients, or `Bernoulli`."""


@dataclass(frozen=True)
class Sampling:
    """A cohort: the first `size` clients of a permutation that is drawn for each round.

    These are all clients, K of N without replacement, or a binomial number of them: then each takes part with
    probability q.
    """

    population: int
    capacity: int
    """The most clients that a round can have."""
    probability: float | None = None

    @property
    def full(self) -> bool:
        return self.probability is None and self.capacity == self.population

    @property
    def expected(self) -> float:
        """How many clients a round has on average."""
        return float(self.capacity) if self.probability is None else self.population * self.probability

    def cohort(self, seed: jax.Array, round: jax.Array, slots: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The clients at the given slots of the round's cohort, whether each slot is taken, and the cohort's size."""
        key = randomness.purpose_key(seed, Purpose.PARTICIPATION, round)
        size = self._size(key)
        taken = slots < size
        clients = randomness.shuffled(key, self.population, jnp.where(taken, slots, 0))
        return clients, taken, size

    def _size(self, key: jax.Array) -> jax.Array:
        if self.probability is None:
            return jnp.asarray(self.capacity, jnp.int32)
        # In float32 also where a run is in float64: its precision must not decide who takes part.
        q = jnp.float32(self.probability)
        draw = jax.random.binomial(jax.random.fold_in(key, 1), self.population, q, dtype=jnp.float32)
        return jnp.clip(draw.astype(jnp.int32), 0, self.capacity)


def sampling(participation: Participation, population: int) -> Sampling:
    """Read `participation`: 1.0 all, a share below 1 or a whole number K of clients, or `Bernoulli(q)`."""
    if isinstance(participation, Bernoulli):
        q = participation.probability
        if isinstance(q, bool) or not isinstance(q, int | float) or not 0 < q <= 1:
            raise PolyfedError(f"participation: the probability must be above 0 and at most 1, found {q!r}")
        if q == 1:
            return Sampling(population, population)
        # Twelve standard deviations: the chance that a draw exceeds this is below 1e-30.
        bound = ceil(population * q + 12 * sqrt(population * q * (1 - q)) + 20)
        return Sampling(population, min(population, bound), float(q))
    if isinstance(participation, bool) or not isinstance(participation, int | float):
        raise PolyfedError(
            f"participation must be a share, a number of clients or Bernoulli(q), found {participation!r}"
        )
    if isinstance(participation, int):
        if not 1 <= participation <= population:
            raise PolyfedError(f"participation: found {participation} clients a round, expected 1 to {population}")
        return Sampling(population, participation)
    if not 0 < participation <= 1:
        raise PolyfedError(f"participation must be a share above 0 and at most 1, found {participation}")
    return Sampling(population, max(1, round(participation * population)))
