"""The server's side of differential privacy across sites: secret noise, a secret cohort, and the privacy spent."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.engine.participation import Sampling
from polyfed.engine.privacy.accounting import Accountant
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.round.records import Sums

log = logging.getLogger("polyfed")


@dataclass(frozen=True)
class PrivacyKeeper:
    """What a server does for privacy. Without a seed it takes the system's random numbers, which nobody can repeat."""

    privacy: Privacy
    sampling: Sampling

    def __post_init__(self) -> None:
        if not self.secret:
            log.warning("privacy.seed is fixed: whoever knows it can take the noise off; leave it out but for tests")

    @property
    def secret(self) -> bool:
        """Whether noise and cohorts are secret."""
        return self.privacy.seed is None

    @cached_property
    def accountant(self) -> Accountant:
        return Accountant(self.privacy, self.sampling)

    @property
    def compiled(self) -> Privacy:
        """The privacy that the server's compiled step applies: all of it, or all but the noise where that is secret."""
        return dataclasses.replace(self.privacy, noise=0.0) if self.secret else self.privacy

    def secret_cohort(self) -> np.ndarray | None:
        """The places of those who take part, drawn so that no site can know who else does; None if they may know."""
        sampling, coin = self.sampling, secrets.SystemRandom()
        if not self.secret or sampling.full:
            return None
        if sampling.probability is None:
            return np.sort(coin.sample(range(sampling.population), sampling.capacity))
        taken = [coin.random() < sampling.probability for _ in range(sampling.population)]
        return np.flatnonzero(taken)

    def refuse_unclipped(self, values: Tree) -> None:
        """Refuse an upload that was not clipped: its site does not keep the terms."""
        if self.privacy.exceeds(values):
            raise Refused(f"its upload is longer than privacy.clip = {self.privacy.clip:g}")

    def noised(self, sums: Sums) -> Sums:
        """The sum as the server's step may read it: with noise, unless the compiled step adds it."""
        if not self.secret or self.privacy.noise == 0:
            return sums
        return sums._replace(values=trees.add(sums.values, self.privacy.secret_noise(sums.values)))

    def spent(self, rounds: int, values: Tree) -> float:
        """Epsilon after so many rounds; a method that uploads nothing spends nothing."""
        return self.accountant.epsilon(rounds) if jax.tree.leaves(values) else 0.0
