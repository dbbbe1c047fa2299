"""Hyper-parameters of the clients, such as mixing weights: one number, one each, a column of the data, or a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data import Federation, Population


def _inverse_size(federation: Federation | Population) -> np.ndarray:
    """m / (m + n_i) with m the median size: a client with few rows leans on the others."""
    sizes = np.asarray(federation.train.sizes, np.float64)
    return np.median(sizes) / (np.median(sizes) + sizes)


Rule = Callable[[Federation | Population], np.ndarray]
ClientValues = float | str | Sequence[float] | np.ndarray | Rule
"""A number for all, one each, a column's or a rule's name, or a function of the federation."""
RULES: dict[str, Rule] = {"inverse_size": _inverse_size}


def mixing_weights(alpha: ClientValues, federation: Federation | Population, owner: str = "alpha") -> np.ndarray:
    """alpha_i of every client, in [0, 1].

    `alpha` is a number, a list with one for each client, the name of a column of the federation, the name of a rule
    ("inverse_size"), or a function of the federation.
    """
    return client_values(alpha, federation, owner, RULES, 1.0)


def client_values(
    given: ClientValues,
    federation: Federation | Population,
    owner: str,
    rules: Mapping[str, Rule] | None = None,
    high: float = float("inf"),
) -> np.ndarray:
    """Every client's value of a hyper-parameter, from 0 to `high`."""
    clients, rules = len(federation), rules or {}
    if callable(given):
        given = given(federation)
    if isinstance(given, str):
        known = {**federation.columns, **rules}
        if given not in known:
            kinds = "neither a column nor a rule" if rules else "not a column of the data"
            raise PolyfedError(f"{owner}: '{given}' is {kinds}{suggestion(given, known)}")
        given = federation.columns[given] if given in federation.columns else rules[given](federation)
    try:
        flags = isinstance(given, list | tuple) and any(isinstance(value, bool | np.bool_) for value in given)
        if flags or np.asarray(given).dtype.kind not in "iuf":
            raise TypeError("NumPy reads flags, and words such as '0.5', as numbers")
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        kinds = "a column or a rule" if rules else "or a column"
        raise PolyfedError(f"{owner} must be a number, a list of them, {kinds}, found {given!r}") from None
    if values.ndim > 1 or (values.ndim == 1 and len(values) != clients):
        raise PolyfedError(f"{owner} has {values.size} values, expected one for each of {clients} clients")
    values = np.broadcast_to(values, (clients,)).copy()
    for client in np.flatnonzero(~((values >= 0) & (values <= high) & np.isfinite(values)))[:1]:
        bounds = f"from 0 to {high:g}" if np.isfinite(high) else "at least 0"
        raise PolyfedError(
            f"{owner} must be {bounds}, found {values[client]:g} for client '{federation.clients[client]}'"
        )
    return values
