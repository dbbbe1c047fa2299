"""Quadratics with chosen spectra and optima, as least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import flag, integer, number
from polyfed.data.seeds import stream


def quadratics(
    clients: int = 10,
    dim: int = 5,
    mu: ArrayLike = 0.1,
    L: ArrayLike = 1.0,
    spectra: ArrayLike | None = None,
    optima: ArrayLike | None = None,
    zeta: float = 1.0,
    center: ArrayLike = 0.0,
    rows: int | None = None,
    rotate: bool = True,
    seed: int = 0,
) -> Federation:
    """f_i(x) = 1/2 (x - c_i)^T H_i (x - c_i) as half the mean squared residual of a linear model without bias.

    Client i has the rows A_i with A_i^T A_i / n_i = H_i and the targets A_i c_i, so that the residual vanishes at c_i.
    H_i = Q_i diag(spectra_i) Q_i^T with a random rotation Q_i (the identity with rotate = false).

    `spectra` gives the eigenvalues, (clients, dim) or (dim,); otherwise each client's lie in [mu_i, L_i] with both
    ends attained and the others log-uniform between (one dimension: L_i). `optima` gives the c_i, (clients, dim);
    otherwise c_i = center + d_i with random d_i of mean zero and mean squared norm exactly zeta^2.
    `rows` per client defaults to dim. All rows are training rows: there is nothing to generalise to.
    """
    clients, dim, seed = integer("clients", clients, 1), integer("dim", dim, 1), integer("seed", seed)
    count = dim if rows is None else integer("rows", rows, dim)
    eigenvalues = _spectra(spectra, mu, L, clients, dim, seed)
    points = _optima(optima, number("zeta", zeta, 0), center, clients, dim, seed)
    flag("rotate", rotate)
    entries = []
    for i in range(clients):
        random = stream(seed, "quadratics", "rotation", i)
        rotation = _orthonormal(random, dim, dim) if rotate else np.eye(dim)
        left = _orthonormal(random, count, dim) if rotate or count > dim else np.eye(dim)
        a = np.sqrt(count) * (left * np.sqrt(eigenvalues[i])) @ rotation.T
        entries.append({"train": (a, a @ points[i])})
    return Federation.from_arrays(
        entries,
        classes=0,
        columns={"mu": eigenvalues.min(axis=1), "L": eigenvalues.max(axis=1)},
        source={
            "name": "quadratics",
            "clients": clients,
            "dim": dim,
            "mu": _plain(mu),
            "L": _plain(L),
            "spectra": _plain(spectra),
            "optima": _plain(optima),
            "zeta": zeta,
            "center": _plain(center),
            "rows": rows,
            "rotate": rotate,
            "seed": seed,
        },
    )


def _spectra(spectra: ArrayLike | None, mu: ArrayLike, L: ArrayLike, clients: int, dim: int, seed: int) -> np.ndarray:
    if spectra is not None:
        values = _matrix("spectra", spectra, clients, dim)
        if (values < 0).any():
            raise PolyfedError(f"spectra must not be negative, found {values.min()}")
        return values
    low, high = _per_client("mu", mu, clients), _per_client("L", L, clients)
    for i in np.flatnonzero((low < 0) | (high < low))[:1]:
        raise PolyfedError(f"mu and L must satisfy 0 <= mu <= L, found mu = {low[i]} and L = {high[i]} for client {i}")
    values = np.empty((clients, dim))
    for i in range(clients):
        inner = stream(seed, "quadratics", "spectrum", i).uniform(size=dim)
        values[i] = low[i] * (high[i] / low[i]) ** inner if low[i] > 0 else high[i] * inner
        values[i, 0], values[i, -1] = low[i], high[i]
    return values


def _optima(optima: ArrayLike | None, zeta: float, center: ArrayLike, clients: int, dim: int, seed: int) -> np.ndarray:
    if optima is not None:
        return _matrix("optima", optima, clients, dim)
    common = np.broadcast_to(_numbers("center", center, (), (dim,)), (dim,))
    spread = np.stack([stream(seed, "quadratics", "optimum", i).standard_normal(dim) for i in range(clients)])
    spread -= spread.mean(axis=0)
    norm = np.sqrt((spread**2).sum(axis=1).mean())
    return common + (zeta / norm * spread if clients > 1 else 0 * spread)


def _orthonormal(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Orthonormal columns, uniformly distributed: the signs of R make the factorisation unique."""
    q, r = np.linalg.qr(random.standard_normal((rows, columns)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def _per_client(name: str, value: object, clients: int) -> np.ndarray:
    return np.broadcast_to(_numbers(name, value, (), (clients,)), (clients,))


def _matrix(name: str, value: object, clients: int, dim: int) -> np.ndarray:
    return np.broadcast_to(_numbers(name, value, (dim,), (clients, dim)), (clients, dim))


def _numbers(name: str, value: object, *shapes: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise PolyfedError(f"{name} must hold numbers, found {value!r}") from None
    if values.shape not in shapes or not np.isfinite(values).all():
        expected = " or ".join("one number" if not shape else f"shape {shape}" for shape in shapes)
        raise PolyfedError(f"{name} has shape {values.shape}, expected {expected} of finite numbers")
    return values


def _plain(value: object) -> object:
    return None if value is None else np.asarray(value).tolist()
