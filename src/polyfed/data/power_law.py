"""FedBC's partition: geometric client sizes with a given number of classes per client (Tables 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.option_checks import choice, integer, number
from polyfed.data.seeds import stream

EXPONENTS = (1.1, 1.2, 1.3, 1.4, 1.5)

# Table 4 of FedBC, one column per exponent: "2x3 5x2 13x1" is 2 clients with 3 classes, 5 with 2, ...
TABLE_4: dict[tuple[str, int], tuple[str, ...]] = {
    ("mnist", 1): ("2x3 5x2 13x1", *["1x4 1x3 4x2 14x1"] * 2, *["1x6 1x3 2x2 16x1"] * 2),
    ("cifar10", 1): ("2x3 5x2 13x1", "1x6 1x3 4x2 14x1", "1x5 1x3 2x2 16x1", *["1x6 1x3 2x2 16x1"] * 2),
    ("mnist", 2): ("1x5 1x4 3x3 15x2", *["1x6 1x4 1x3 17x2"] * 4),
    ("cifar10", 2): ("1x5 1x4 3x3 15x2", "1x5 2x4 17x2", *["1x6 1x4 1x3 17x2"] * 3),
    ("mnist", 3): (*["1x7 2x4 17x3"] * 2, *["1x8 2x4 17x3"] * 3),
    ("cifar10", 3): ("2x5 1x4 17x3", "1x7 2x4 17x3", *["1x8 2x4 17x3"] * 2, "1x9 1x4 18x3"),
}


def fedbc_classes(dataset: str, C: int, exponent: float) -> list[int]:
    """Table 4 of FedBC: the number of classes of each of its 20 clients, largest client first."""
    choice("dataset", dataset, {name for name, _ in TABLE_4})
    if (dataset, C) not in TABLE_4 or exponent not in EXPONENTS:
        raise PolyfedError(f"Table 4 has C = 1, 2, 3 and exponents {EXPONENTS}, found C = {C!r} and {exponent!r}")
    groups = [group.split("x") for group in TABLE_4[dataset, C][EXPONENTS.index(exponent)].split()]
    return [int(classes) for clients, classes in groups for _ in range(int(clients))]


def power_law(
    labels: np.ndarray, clients: int, exponent: float, classes: int | Sequence[int], seed: int = 0
) -> list[np.ndarray]:
    """Client i has n_i rows in proportion to exponent^-i, of exactly classes[i] classes; all rows are used once.

    FedBC, Appendices D.1 and D.3; the law is not spelled out there, but 1.1^19 = 7486 / 1222 of its Table 5.
    Clients from the largest take the classes with the most rows left, in equal parts as far as they last, and what is
    left of a class goes to its largest holder. Rows then move between clients that hold the same class until the
    sizes are the law's (a maximum flow). Where the chosen classes do not admit that, up to TRIALS other choices are
    made and the nearest is kept: sizes may then be a few rows off, the numbers of classes never are.
    """
    labels = np.asarray(labels)
    integer("clients", clients, 1)
    number("exponent", exponent, 1)
    present, codes, supply = np.unique(labels, return_inverse=True, return_counts=True)
    wanted = _class_counts(classes, clients, supply)
    sizes = geometric_sizes(len(labels), exponent, wanted)
    table = _allocate(supply, sizes, wanted, stream(seed, "power_law", "classes"))
    random = stream(seed, "power_law", "rows")
    owned: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for c in range(len(present)):
        rows = random.permutation(np.flatnonzero(codes == c))
        for own, part in zip(owned, np.split(rows, np.cumsum(table[:-1, c])), strict=True):
            own.append(part)
    return [np.sort(np.concatenate(own)) for own in owned]


def geometric_sizes(rows: int, exponent: float, least: np.ndarray) -> np.ndarray:
    """Whole numbers in proportion to exponent^-i that add up to `rows`, client i having at least least[i]."""
    weights = float(exponent) ** -np.arange(len(least), dtype=np.float64)
    fixed = np.zeros(len(least), dtype=bool)
    while True:
        free = rows - least[fixed].sum()
        share = np.where(fixed, least, free * weights / max(weights[~fixed].sum(), 1e-300))
        short = ~fixed & (share < least)
        if not short.any():
            break
        fixed |= short  # at least one more each time, so this ends
    sizes = np.floor(share).astype(np.int64)
    sizes[np.argsort(sizes - share, kind="stable")[: rows - sizes.sum()]] += 1
    return sizes


TRIALS = 300


def _allocate(supply: np.ndarray, sizes: np.ndarray, wanted: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Rows of each class for each client, (clients, classes)."""
    best, least = None, np.inf
    for trial in range(max(3, TRIALS * 20 // max(20, len(sizes)))):
        # First from the largest client, then from the most rows per class, then in a random order with random tastes.
        power = (0.0, 1.0)[trial] if trial < 2 else random.uniform()
        taste = np.exp((0.6 if trial > 1 else 0.0) * random.standard_normal((len(sizes), len(supply))))
        order = np.argsort(-sizes / wanted**power, kind="stable")
        table = _greedy(supply, sizes, wanted, order, taste)
        if table is None:
            continue
        _balance(table, sizes)
        off = np.abs(table.sum(axis=1) - sizes).sum()
        if off < least:
            best, least = table, off
        if off == 0:
            break
    if best is None:
        # There are hardly more rows than classes to hold: clients with many classes choose first, where room is left.
        best = _greedy(supply, sizes, wanted, np.argsort(-wanted, kind="stable"), None)
    if best is None:
        raise PolyfedError(f"{len(sizes)} clients with {wanted.max()} to {wanted.min()} classes do not fit the classes")
    return best


def _greedy(
    supply: np.ndarray, sizes: np.ndarray, wanted: np.ndarray, order: np.ndarray, taste: np.ndarray | None
) -> np.ndarray | None:
    """Classes for every client, at least one row in each; None where the classes ran out of rows."""
    table = np.zeros((len(sizes), len(supply)), dtype=np.int64)
    left, holders, slots = supply.copy(), np.zeros(len(supply), dtype=np.int64), int(wanted.sum())
    for client in order:
        count = int(wanted[client])
        slots -= count
        appeal = (supply - holders).astype(float) if taste is None else np.maximum(left, 0.5) * taste[client]
        appeal[holders >= supply] = -1.0
        unheld = np.flatnonzero(holders == 0)
        forced = max(0, len(unheld) - slots)  # classes that nobody could take later
        appeal[unheld[np.argsort(-appeal[unheld], kind="stable")[:forced]]] = np.inf
        chosen = np.argsort(-appeal, kind="stable")[:count]
        if (appeal[chosen] < 0).any():
            return None
        table[client, chosen] = np.maximum(_equal_parts(int(sizes[client]), left[chosen]), 1)
        left -= table[client]
        holders[chosen] += 1
    for c in range(len(supply)):
        table[int(np.argmax(table[:, c] > 0)), c] += max(0, left[c])
        while left[c] < 0:  # single rows that a client had to have
            giver = int(np.argmax(table[:, c]))
            given = min(-left[c], table[giver, c] - 1)
            table[giver, c] -= given
            left[c] += given
    return table


def _equal_parts(amount: int, available: np.ndarray) -> np.ndarray:
    """Water-filling: equal parts of `amount`, none beyond what is available."""
    parts = np.zeros(len(available), dtype=np.int64)
    for position, c in enumerate(np.argsort(available, kind="stable")):
        parts[c] = min(max(0, available[c]), -(-amount // (len(available) - position)))
        amount -= int(parts[c])
    return parts


def _balance(table: np.ndarray, sizes: np.ndarray) -> None:
    """Move rows along chains of clients that share a class, in place, until the sizes fit or no chain is left.

    A maximum flow by breadth-first search from the clients above their size to one below; holdings stay at least 1.
    """
    holds = table > 0
    over = table.sum(axis=1) - sizes
    while True:
        reached_from = np.full(len(sizes), -1)  # the class through which a client was reached
        given_by = np.full(table.shape[1], -1)  # the client that gives rows of a class
        frontier = over > 0
        reached = frontier.copy()
        while frontier.any() and not (frontier & (over < 0)).any():
            spare = np.where(frontier[:, None], table - 1, 0)
            fresh = (given_by < 0) & (spare.max(axis=0) > 0)
            given_by[fresh] = spare.argmax(axis=0)[fresh]
            frontier = holds[:, fresh].any(axis=1) & ~reached
            if not frontier.any():
                break
            reached_from[frontier] = np.flatnonzero(fresh)[holds[np.ix_(frontier, fresh)].argmax(axis=1)]
            reached |= frontier
        ends = np.flatnonzero(frontier & (over < 0))
        if not len(ends):
            return
        client = int(ends[np.argmin(over[ends])])
        chain, amount = [], -over[client]
        end = client
        while reached_from[client] >= 0:
            c = int(reached_from[client])
            giver = int(given_by[c])
            chain.append((giver, c, client))
            amount = min(amount, table[giver, c] - 1)
            client = giver
        amount = min(amount, over[client])
        for giver, c, taker in chain:
            table[giver, c] -= amount
            table[taker, c] += amount
        over[client] -= amount
        over[end] += amount


def _class_counts(classes: int | Sequence[int], clients: int, supply: np.ndarray) -> np.ndarray:
    counts = [classes] * clients if np.ndim(classes) == 0 else np.asarray(classes).tolist()
    if len(counts) != clients:
        raise PolyfedError(f"classes has {len(counts)} entries, expected one for each of {clients} clients")
    wanted = np.array([integer("classes", count, 1) for count in counts], dtype=np.int64)
    if wanted.max() > len(supply):
        raise PolyfedError(f"classes = {wanted.max()} per client is more than the {len(supply)} classes in the labels")
    if wanted.sum() < len(supply):
        raise PolyfedError(f"the clients hold {wanted.sum()} classes in all, but the labels have {len(supply)}")
    if wanted.sum() > np.minimum(supply, clients).sum():
        raise PolyfedError(
            f"the clients need {wanted.sum()} rows, one per class that they hold, "
            f"but the classes can give only {np.minimum(supply, clients).sum()}"
        )
    return wanted
