"""Federations of rows that already lie in one array: each row is copied once, into aligned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyfed.core.aligned import take
from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import fractions, integer
from polyfed.data.seeds import stream
from polyfed.data.split import PARTS, Split, joined, offsets_of, split_rows, split_sizes

Rows = Sequence[np.ndarray]
"""For each client, the rows that it owns."""
PUBLISHED = "published"
"""The value of `test` that keeps a dataset's own test rows for testing."""


def federation_of_rows(
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    parts: Mapping[str, Rows],
    *,
    label_names: tuple[str, ...] | None,
    classes: int | None,
    source: dict[str, object],
    columns: dict[str, np.ndarray] | None = None,
) -> Federation:
    """The federation whose client i has the rows parts["train"][i] and so on."""
    splits = {}
    for part in PARTS:
        rows = parts[part]
        flat = joined(rows)
        splits[part] = Split(take(x, flat), take(y, flat), offsets_of([len(own) for own in rows]))
    return Federation(
        clients=tuple(names), **splits, classes=classes, label_names=label_names, columns=columns or {}, source=source
    )


def split_at_random(
    names: Sequence[str], rows: Rows, y: np.ndarray, validation: float, test: float, seed: int
) -> dict[str, Rows]:
    """Each client's rows in three parts, drawn by (seed, its name), with its labels spread evenly over them."""
    flat = joined(rows)
    picked = split_rows(names, [len(r) for r in rows], y[flat], validation=validation, test=test, seed=seed)
    return {part: np.split(flat[index], offsets[1:-1]) for part, (index, offsets) in picked.items()}


def split_in_order(names: Sequence[str], rows: Rows, validation: float, test: float) -> dict[str, Rows]:
    """Each client's rows in three parts as they come: the first for training, the last for test."""
    parts: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for name, own in zip(names, rows, strict=True):
        train, held, _ = map(int, split_sizes(len(own), validation, test))
        if train < 1:
            raise PolyfedError(f"client {name!r} has too few rows for training and test rows, found {len(own)}")
        for part, rows_of_part in zip(PARTS, np.split(own, [train, train + held]), strict=True):
            parts[part].append(rows_of_part)
    return dict(parts)


def natural_clients(
    sizes: Mapping[str, int], clients: int | None, min_rows: int, seed: int, *, where: str, what: str = "clients"
) -> list[str]:
    """The clients with at least `min_rows` rows, or `clients` of them drawn at random, in their order.

    With the same seed a smaller number draws a subset of what a larger one draws.
    """
    integer("min_rows", min_rows, 1)
    enough = [name for name, size in sizes.items() if size >= min_rows]
    if not enough:
        raise PolyfedError(f"{where}: none of its {len(sizes)} {what} has {min_rows} rows, as min_rows asks for")
    if clients is None:
        return enough
    integer("clients", clients, 1)
    if clients > len(enough):
        raise PolyfedError(
            f"{where}: has {len(enough)} {what} with at least {min_rows} rows, expected at least clients = {clients}"
        )
    drawn = stream(seed, "clients").permutation(len(enough))[:clients]
    return [enough[i] for i in np.sort(drawn)]


def held_out(validation: object, test: object) -> tuple[float, float | None]:
    """The shares that are held out; a test share of None stands for the published test rows."""
    if isinstance(test, str):
        if test != PUBLISHED:
            raise PolyfedError(f"test must be {PUBLISHED!r} or a share of a client's rows in [0, 1), found {test!r}")
        return fractions(validation, 0.0)[0], None
    return fractions(validation, test)
