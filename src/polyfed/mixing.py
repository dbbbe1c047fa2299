"""Mixing weights: one number, one for each client, a column of the data, or a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyfed.data import Federation
from polyfed.errors import PolyfedError, suggestion


def _inverse_size(federation: Federation) -> np.ndarray:
    """m / (m + n_i) with m the median size: a client with few rows leans on the others."""
    sizes = np.asarray(federation.train.sizes, np.float64)
    return np.median(sizes) / (np.median(sizes) + sizes)


RULES: dict[str, Callable[[Federation], np.ndarray]] = {"inverse_size": _inverse_size}


def mixing_weights(alpha: Any, federation: Federation, owner: str = "alpha") -> np.ndarray:
    """alpha_i of every client, in [0, 1].

    `alpha` is a number, a list with one for each client, the name of a column of the federation, the name of a rule
    ("inverse_size"), or a function of the federation.
    """
    clients = len(federation)
    if callable(alpha):
        alpha = alpha(federation)
    if isinstance(alpha, str):
        known = {**federation.columns, **RULES}
        if alpha not in known:
            raise PolyfedError(f"{owner}: '{alpha}' is neither a column nor a rule{suggestion(alpha, known)}")
        alpha = federation.columns[alpha] if alpha in federation.columns else RULES[alpha](federation)
    try:
        weights = np.asarray(alpha, np.float64)
    except (TypeError, ValueError):
        raise PolyfedError(f"{owner} must be a number, a list of them, a column or a rule, found {alpha!r}") from None
    if weights.ndim > 1 or (weights.ndim == 1 and len(weights) != clients):
        raise PolyfedError(f"{owner} has {weights.size} values, expected one for each of {clients} clients")
    weights = np.broadcast_to(weights, (clients,)).copy()
    for client in np.flatnonzero(~((weights >= 0) & (weights <= 1)))[:1]:
        raise PolyfedError(
            f"{owner} must be from 0 to 1, found {weights[client]:g} for client '{federation.clients[client]}'"
        )
    return weights
