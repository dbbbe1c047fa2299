"""FedBC (Bedi et al. 2022): the interval of the multipliers for which Theorem 4.5 holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.theory.inputs import clients


class MultiplierInterval(NamedTuple):
    """The open interval (low, high) of Theorem 4.5, and whether its proof covers every client."""

    low: float
    high: float
    covers_all: bool
    """Whether low >= L_i of every client, without which the step (36) of the proof need not be a descent. The theorem
    has L_min alone, which is enough only where the L_i are about equal."""


def multiplier_interval(L: ArrayLike, beta: float = 1.5) -> MultiplierInterval:
    """beta L_min < lambda_i < beta^2 L_min with beta > 1 (Theorem 4.5).

    The theorem's constant C_0 = 1 - lambda_max / (4 L_min) is positive for every multiplier in the interval only where
    beta <= 2, so that a larger beta is refused.
    """
    (L_i,) = clients(L=L)
    if not (np.ndim(beta) == 0 and 1 < beta <= 2):
        raise PolyfedError(f"beta must be above 1 and at most 2, found {beta}")
    least = float(L_i.min())
    return MultiplierInterval(beta * least, beta**2 * least, bool(beta * least >= L_i.max()))
