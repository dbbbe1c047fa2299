"""The privacy that a run has spent, by Google's dp-accounting: epsilon at a delta, after so many rounds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.engine.participation import Sampling
from polyfed.engine.privacy.mechanism import Privacy

INTERVAL = 1e-3
"""The width at which privacy losses are rounded up: epsilon comes out larger by about as much, never smaller."""

MOST = 100_000
"""The most such widths: with little noise losses are large, and are rounded up further."""
TAIL = 12.0
"""Standard deviations of the Gaussian's losses that are looked at: those beyond have a chance below 1e-32."""


@dataclass(frozen=True)
class Accountant:
    """Counts the rounds of one run: the Gaussian mechanism, amplified by who takes part where that is drawn."""

    privacy: Privacy
    sampling: Sampling

    def __post_init__(self) -> None:
        if find_spec("dp_accounting") is None:
            raise PolyfedError("privacy needs the package dp-accounting: pip install 'polyfed[privacy]'")
        clients = self.sampling.population
        if self.privacy.delta * clients >= 1:
            warnings.warn(
                f"privacy.delta = {self.privacy.delta:g} is not below 1 / {clients} clients: such a delta would allow "
                "to publish one client's data whole",
                stacklevel=2,
            )

    @property
    def neighbours(self) -> str:
        """The federations that epsilon says cannot be told apart."""
        return "add or remove one client" if self._by_chance else "replace one client"

    @property
    def _by_chance(self) -> bool:
        """Whether a client takes part independently of the others: always, or by a coin of its own."""
        return self.sampling.full or self.sampling.probability is not None

    def epsilon(self, rounds: int) -> float:
        """Epsilon after so many rounds; infinite without noise."""
        if rounds == 0:
            return 0.0
        return _epsilon(self.privacy.noise, self.privacy.delta, self.sampling, rounds)

    def facts(self, rounds: int) -> JsonObject:
        """What a summary says of it."""
        sampling = self.sampling
        share = 1.0 if sampling.full else sampling.probability or sampling.capacity / sampling.population
        return {
            "epsilon": self.epsilon(rounds),
            "delta": self.privacy.delta,
            "clip": self.privacy.clip,
            "noise": self.privacy.noise,
            "noise_from": self.privacy.noise_from,
            "neighbours": self.neighbours,
            "participation": share,
            "sampling": "all" if sampling.full else "independent" if self._by_chance else "fixed size",
            "clients": sampling.population,
            "rounds": rounds,
        }


@lru_cache(maxsize=4096)
def _epsilon(noise: float, delta: float, sampling: Sampling, rounds: int) -> float:
    if noise == 0:
        return float("inf")
    import dp_accounting  # pyright: ignore[reportMissingImports]

    if sampling.full:  # so many Gaussian mechanisms are one with less noise
        return float(dp_accounting.get_epsilon_gaussian(noise / sqrt(rounds), delta))
    by_loss = float(_one_round(noise, sampling).self_compose(rounds).get_epsilon_for_delta(delta))
    if sampling.probability is not None:
        return by_loss
    divergences = _divergences(noise, sampling)
    return min(
        by_loss, float(dp_accounting.rdp.compute_epsilon(divergences.orders, rounds * divergences.rdp, delta)[0])
    )


@lru_cache(maxsize=16)
def _one_round(noise: float, sampling: Sampling) -> Any:
    """A round's privacy loss distribution."""
    from dp_accounting.pld import privacy_loss_distribution as losses  # pyright: ignore[reportMissingImports]

    q = sampling.probability
    if q is not None:
        return losses.from_gaussian_mechanism(noise, sampling_prob=q, value_discretization_interval=INTERVAL)
    return _fixed_size(noise, sampling.capacity / sampling.population)


def _fixed_size(noise: float, share: float) -> Any:
    """The privacy loss distribution of a round whose cohort is this share of the clients, drawn without replacement.

    One client takes another's place, and the sum moves by up to twice the clip. Balle, Barthe, Gaboardi 2018 (sampling
    without replacement under substitution): delta(log(1 + share (e^e - 1))) <= share * delta_Gaussian(e) for e >= 0.
    The relation is symmetric, so that the same holds in both directions, and delta(-e) = 1 - e^-e + e^-e delta(e).
    A pair of distributions with these deltas dominates every round, hence its composition all of them (Zhu, Dong, Wang
    2022); it is made of the deltas by connecting the dots (Doroshenko et al. 2022), which rounds up.
    """
    from dp_accounting.pld import pld_pmf  # pyright: ignore[reportMissingImports]
    from dp_accounting.pld import privacy_loss_distribution as losses  # pyright: ignore[reportMissingImports]

    scale = noise / 2
    most = 0.5 / scale**2 + TAIL / scale  # beyond it the Gaussian's delta is below any that is asked for
    span = np.log1p(share * np.expm1(min(most, 700.0)))
    width = max(INTERVAL, float(span) / MOST)
    count = int(np.ceil(span / width)) + 1
    epsilons = width * np.arange(count + 1)
    inner = np.log1p(np.expm1(epsilons) / share)
    above = share * (ndtr(0.5 / scale - inner * scale) - np.exp(inner + log_ndtr(-0.5 / scale - inner * scale)))
    above = np.clip(above, 0.0, 1.0)
    below = (-np.expm1(-epsilons) + np.exp(-epsilons) * above)[:0:-1]
    deltas = np.minimum.accumulate(np.concatenate([below, above]))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(width, -count, count, deltas)
    return losses.PrivacyLossDistribution(pmf)


@lru_cache(maxsize=16)
def _divergences(noise: float, sampling: Sampling) -> Any:
    """The Renyi divergences of such a round: Wang, Balle, Kasiviswanathan 2019."""
    import dp_accounting  # pyright: ignore[reportMissingImports]

    event = dp_accounting.SampledWithoutReplacementDpEvent(
        sampling.population, sampling.capacity, dp_accounting.GaussianDpEvent(noise / 2)
    )
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return dp_accounting.rdp.RdpAccountant(neighboring_relation=relation).compose(event)
