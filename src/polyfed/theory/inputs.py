"""What the theorems take: one number per client, or one for all, checked by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyfed.core import checks
from polyfed.core.checks import INFINITE
from polyfed.core.errors import PolyfedError

Vector = NDArray[np.float64]

RANGES: dict[str, tuple[float, bool, float]] = {
    "L": (0.0, True, INFINITE),
    "mu": (0.0, False, INFINITE),
    "alpha": (0.0, False, 1.0),
    "omega": (0.0, False, INFINITE),
    "beta": (0.0, True, 1.0),
    "stepsize": (0.0, True, INFINITE),
    "probability": (0.0, True, 1.0),
    "epsilon": (0.0, True, INFINITE),
    "variance": (0.0, False, INFINITE),
    "diameter": (0.0, False, INFINITE),
    "start": (0.0, False, INFINITE),
    "A": (0.0, True, INFINITE),
    "C": (0.0, False, INFINITE),
    "rows": (0.0, True, INFINITE),
    "global_risk": (0.0, False, INFINITE),
    "local_risk": (0.0, False, INFINITE),
    "divergence": (0.0, False, 2.0),
    "disagreement": (0.0, False, INFINITE),
    "loss_bound": (0.0, False, INFINITE),
    "lipschitz": (0.0, False, INFINITE),
    "dimension": (0.0, False, INFINITE),
    "confidence": (0.0, True, 1.0),
    "constant": (0.0, False, INFINITE),
    "diversity": (0.0, False, INFINITE),
    "gradient": (0.0, False, INFINITE),
    "discrepancy": (0.0, False, INFINITE),
    "radius": (0.0, False, INFINITE),
    "noise": (0.0, False, INFINITE),
    "heterogeneity": (0.0, False, INFINITE),
    "personalization": (0.0, False, INFINITE),
    "outer_stepsize": (0.0, False, INFINITE),
    "multiplier": (0.0, False, INFINITE),
}
"""The least value of each quantity, whether that value itself is left out, and the greatest."""


def clients(**values: ArrayLike) -> list[Vector]:
    """The quantities as vectors of one length: a number is the same for all clients."""
    vectors = {name: _checked(name, value) for name, value in values.items()}
    lengths = {name: vector.size for name, vector in vectors.items() if vector.ndim == 1 and vector.size != 1}
    if len(set(lengths.values())) > 1:
        several = " and ".join(f"{size} of {name}" for name, size in lengths.items())
        raise PolyfedError(f"one number per client is needed of each quantity, found {several}")
    size = max(lengths.values(), default=1)
    whole = {name: np.broadcast_to(vector.reshape(-1), size) for name, vector in vectors.items()}
    if "L" in whole and "mu" in whole:
        wrong = np.flatnonzero(whole["mu"] > whole["L"] * (1 + 1e-9))
        if wrong.size:
            client = wrong[0]
            mu, L = whole["mu"][client], whole["L"][client]
            raise PolyfedError(f"mu must be at most L, found mu = {mu:g} and L = {L:g} of client {client}")
    return list(whole.values())


def number(name: str, value: float) -> float:
    """One number, within the range of its name."""
    array = _checked(name, value)
    if array.ndim:
        raise PolyfedError(f"{name} must be one number, found {array.size}")
    return float(array)


def count(name: str, value: int | np.integer, low: int = 0) -> int:
    """A whole number, at least `low`, Python's or NumPy's."""
    return checks.whole(name, int(value) if isinstance(value, np.integer) else value, low)


def _checked(name: str, value: ArrayLike) -> Vector:
    array = np.asarray(value, np.float64)
    if array.ndim > 1:
        raise PolyfedError(f"{name} must be a number or one number per client, found an array of shape {array.shape}")
    low, above, high = RANGES[name]
    good = np.isfinite(array) & ((array > low) if above else (array >= low)) & (array <= high)
    if not good.all() or not array.size:
        client = int(np.flatnonzero(~good.reshape(-1))[0]) if array.size else 0
        where = f" of client {client}" if array.ndim else ""
        shown = f"{array.reshape(-1)[client]:g}{where}" if array.size else "nothing"
        raise PolyfedError(f"{name} must be {checks.bounds(low, high, above)}, found {shown}")
    return array


def steps_to(epsilon: float, start: float, rate: float) -> float:
    """The least whole k with (1 - rate)^k start <= epsilon; infinite where the rate is zero."""
    if start <= epsilon:
        return 0
    if rate <= 0:
        return INFINITE
    if rate >= 1:
        return 1
    return int(np.ceil(np.log(start / epsilon) / -np.log1p(-rate)))
