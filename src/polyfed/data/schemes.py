"""Schemes that share rows out over clients: disjoint index arrays, seeded, exact, and without retries."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.names import ClientNames
from polyfed.data.option_checks import choice, flag, integer, number, option_names
from polyfed.data.power_law import power_law
from polyfed.data.seeds import stream


def iid(n: int, clients: int, seed: int = 0) -> list[np.ndarray]:
    """A random permutation of n rows cut into blocks whose sizes differ by at most one."""
    _check_enough(n, clients)
    return [np.sort(part) for part in np.array_split(stream(seed, "iid").permutation(n), clients)]


def contiguous(n: int, clients: int, drop_remainder: bool = False) -> list[np.ndarray]:
    """Blocks in file order: client i of r has the rows floor(i n / r) to floor((i + 1) n / r) - 1. FLIX, Section 4.

    With drop_remainder every client has floor(n / r) rows and the last rows are left out.
    """
    _check_enough(n, clients)
    if flag("drop_remainder", drop_remainder):
        n -= n % clients
    bounds = np.arange(clients + 1) * n // clients
    return [np.arange(low, high) for low, high in itertools.pairwise(bounds)]


def classes_per_client(labels: np.ndarray, clients: int, k: int, seed: int = 0) -> list[np.ndarray]:
    """Every client has rows of exactly k classes, and all rows are used once.

    Class c is cut into m_c near-equal shares, m_c in proportion to its rows and at most one share per client, with
    sum m_c = clients * k. Clients in random order then take k classes each, at random in proportion to the shares
    left; a class with as many shares left as clients is always taken, which keeps the rest feasible.
    """
    labels = np.asarray(labels)
    integer("clients", clients, 1)
    integer("k", k, 1)
    present, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if k > len(present):
        raise PolyfedError(f"k = {k} classes per client is more than the {len(present)} classes in the labels")
    if clients * k < len(present):
        raise PolyfedError(
            f"{clients} clients with k = {k} classes hold at most {clients * k} classes, "
            f"but the labels have {len(present)}"
        )
    shares = _apportion(counts, clients, k)
    random = stream(seed, "classes_per_client")
    by_class = random.permutation(len(labels))
    by_class = by_class[np.argsort(codes[by_class], kind="stable")]
    pieces = [
        list(np.array_split(rows, m))
        for rows, m in zip(np.split(by_class, np.cumsum(counts)[:-1]), shares, strict=True)
    ]
    left = shares.copy()
    owned: list[np.ndarray] = [np.zeros(0, np.int64)] * clients
    for remaining, client in zip(range(clients, 0, -1), random.permutation(clients), strict=True):
        # An exponential race draws without replacement with chances proportional to the shares left.
        with np.errstate(divide="ignore"):
            arrival = random.standard_exponential(len(left)) / left
        arrival[left == remaining] = -1.0
        taken = np.argsort(arrival, kind="stable")[:k]
        left[taken] -= 1
        owned[client] = np.sort(np.concatenate([pieces[c].pop() for c in taken]))
    return owned


def shards(labels: np.ndarray, clients: int, k: int = 2, deal: str = "random", seed: int = 0) -> list[np.ndarray]:
    """Rows in the order of their labels, cut into clients * k blocks of equal size (give or take a row), k per client.

    McMahan et al. 2017 deal the blocks out at random. With deal = "in turn" client i has the blocks i, i + clients, and
    so on: with 10 equal classes and k = 2 there are five pairs of classes, each with as many clients.
    """
    labels = np.asarray(labels)
    _check_enough(len(labels), integer("clients", clients, 1) * integer("k", k, 1))
    choice("deal", deal, ("random", "in turn"))
    random = stream(seed, "shards")
    rows = random.permutation(len(labels))
    blocks = np.array_split(rows[np.argsort(labels[rows], kind="stable")], clients * k)
    order = random.permutation(clients * k) if deal == "random" else np.arange(clients * k)
    return [np.sort(np.concatenate([blocks[b] for b in order[i::clients]])) for i in range(clients)]


def dirichlet(
    labels: np.ndarray, clients: int, concentration: float, seed: int = 0, min_size: int = 1
) -> list[np.ndarray]:
    """The rows of each class are shared out in proportions drawn from Dirichlet(concentration, ..., concentration).

    A client short of `min_size` rows gets single rows from whichever client is then the largest, so the guarantee
    costs a few moved rows and no second draw.
    """
    labels = np.asarray(labels)
    number("concentration", concentration, above=0)
    _check_enough(len(labels), clients, integer("min_size", min_size))
    random = stream(seed, "dirichlet")
    pools: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for c in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == c))
        share = random.dirichlet(np.full(clients, concentration))
        bounds = np.floor(np.cumsum(share)[:-1] * len(rows) + 0.5).astype(np.int64).clip(0, len(rows))
        for pool, part in zip(pools, np.split(rows, bounds), strict=True):
            pool.append(part)
    owned = [random.permutation(np.concatenate(pool)) for pool in pools]
    return [np.sort(rows) for rows in _level(owned, min_size)]


def by_column(values: object) -> dict[str, np.ndarray]:
    """Rows grouped by a value (a writer, a site): name -> rows, in the order in which the values first appear."""
    names, first, codes = np.unique(np.asarray(values).astype(np.str_), return_index=True, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return {str(names[i]): groups[i] for i in np.argsort(first)}


SCHEMES: dict[str, Callable[..., list[np.ndarray]]] = {
    "iid": iid,
    "contiguous": contiguous,
    "classes_per_client": classes_per_client,
    "shards": shards,
    "dirichlet": dirichlet,
    "power_law": power_law,
}
"""The schemes that make a given number of clients; "column" makes one of each distinct value."""


def scheme_options(scheme: str) -> tuple[set[str], set[str]]:
    """The (all, required) options of a scheme beyond rows, clients and seed."""
    known = {**SCHEMES, "column": by_column}
    names, required = option_names(known[choice("partition", scheme, known)])
    return names - {"n", "labels", "clients", "seed"}, required - {"n", "labels", "clients", "seed"}


def assign(
    y: np.ndarray, scheme: str, clients: int | None, seed: int, options: Mapping[str, object]
) -> tuple[list[str], list[np.ndarray]]:
    """(names, rows of each) of the clients that a scheme makes of rows with these targets."""
    if scheme == "column":
        groups = by_column(options["values"])
        if (entries := sum(map(len, groups.values()))) != len(y):
            raise PolyfedError(f"values has {entries} entries, expected one for each of {len(y)} rows")
        return list(groups), list(groups.values())
    clients = integer("clients", clients, 1)
    return list(ClientNames(clients)), _apply(scheme, y, clients, seed, options)


def _apply(scheme: str, y: np.ndarray, clients: int, seed: int, options: Mapping[str, object]) -> list[np.ndarray]:
    if scheme == "iid":
        return iid(len(y), clients, seed)
    if scheme == "contiguous":
        return SCHEMES[scheme](len(y), clients, **options)
    if y.ndim != 1 or y.dtype.kind == "f":
        raise PolyfedError(f"partition {scheme!r} needs one class label per row, found type {y.dtype}, shape {y.shape}")
    return SCHEMES[scheme](y, clients, seed=seed, **options)


def _apportion(counts: np.ndarray, clients: int, k: int) -> np.ndarray:
    """Shares per class: at least 1, at most min(clients, rows), clients * k in all, in proportion to the rows."""
    limits = np.minimum(clients, counts)
    if limits.sum() < clients * k:
        raise PolyfedError(
            f"{clients} clients with k = {k} classes need {clients * k} shares, "
            f"but the classes have rows for only {limits.sum()}"
        )
    shares = np.ones(len(counts), dtype=np.int64)
    queue = [(-count / 2, c) for c, count in enumerate(counts) if limits[c] > 1]
    heapq.heapify(queue)
    for _ in range(clients * k - len(counts)):
        _, c = heapq.heappop(queue)
        shares[c] += 1
        if shares[c] < limits[c]:
            heapq.heappush(queue, (-counts[c] / (shares[c] + 1), c))
    return shares


def _level(owned: list[np.ndarray], min_size: int) -> list[np.ndarray]:
    """Move single rows from whichever client is the largest until everybody has min_size rows."""
    sizes = [len(rows) for rows in owned]
    donors = [(-size, client) for client, size in enumerate(sizes)]
    heapq.heapify(donors)
    extra: dict[int, list[int]] = {}
    for client in range(len(owned)):
        while sizes[client] < min_size:
            _, donor = heapq.heappop(donors)
            sizes[donor] -= 1
            sizes[client] += 1
            extra.setdefault(client, []).append(int(owned[donor][sizes[donor]]))
            heapq.heappush(donors, (-sizes[donor], donor))
    # A receiver's size stays at min_size while donors are above it, so no receiver ever gives.
    return [np.concatenate([rows[: sizes[i]], np.array(extra.get(i, []), np.int64)]) for i, rows in enumerate(owned)]


def _check_enough(n: int, clients: int, min_size: int = 1) -> None:
    integer("clients", clients, 1)
    if n < clients * max(1, min_size):
        raise PolyfedError(f"{n} rows are too few for {clients} clients with at least {max(1, min_size)} each")
