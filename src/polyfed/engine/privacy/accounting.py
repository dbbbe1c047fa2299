"""The privacy that a run has spent, by Google's dp-accounting: epsilon at a delta, after so many rounds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import sqrt
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.engine.participation import Sampling
from polyfed.engine.privacy.mechanism import Privacy

INTERVAL = 1e-3
"""The width at which privacy losses are rounded up: epsilon comes out larger by about as much, never smaller."""


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
        """Whether a client takes part whoever else does: always, or by a coin of its own."""
        return self.sampling.full or self.sampling.probability is not None

    def epsilon(self, rounds: int) -> float:
        """Epsilon after so many rounds; infinite without noise."""
        if rounds == 0:
            return 0.0
        return _epsilon(self.privacy.noise, self.privacy.delta, self.sampling, rounds)

    def facts(self, rounds: int) -> dict[str, Any]:
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
    one = _one_round(noise, sampling)
    if sampling.probability is not None:
        return float(one.self_compose(rounds).get_epsilon_for_delta(delta))
    return float(dp_accounting.rdp.compute_epsilon(one.orders, rounds * one.rdp, delta)[0])


@lru_cache(maxsize=16)
def _one_round(noise: float, sampling: Sampling) -> Any:
    """A round's privacy loss distribution or, of a cohort of a fixed size, its Renyi divergences."""
    import dp_accounting  # pyright: ignore[reportMissingImports]
    from dp_accounting.pld import privacy_loss_distribution as losses  # pyright: ignore[reportMissingImports]

    if sampling.probability is not None:
        q = sampling.probability
        return losses.from_gaussian_mechanism(noise, sampling_prob=q, value_discretization_interval=INTERVAL)
    # One client takes another's place: the sum moves by up to twice the clip.
    gaussian = dp_accounting.GaussianDpEvent(noise / 2)
    event = dp_accounting.SampledWithoutReplacementDpEvent(sampling.population, sampling.capacity, gaussian)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return dp_accounting.rdp.RdpAccountant(neighboring_relation=relation).compose(event)
