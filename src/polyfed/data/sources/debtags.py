"""Debian's package descriptions as bags of words, with the packages' tags, by maintainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import PathLike, existing_path, fractions, integer
from polyfed.data.seeds import stream
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.published import published_file
from polyfed.data.sources.rows import Rows, federation_of_rows, natural_clients, split_at_random
from polyfed.data.split import PARTS

SHARES = (0.1, 0.2)
"""The validation and test rows of a maintainer, unless they are given."""
COUNTS = (100, 300)
"""The most validation and test rows that the workers of a maintainer share, unless they are given (FLIX, Sec. 10)."""
PRESENT = 255
"""A word that occurs: bytes are divided by this before a model sees them."""


def debtags(
    path: PathLike | None = None,
    clients: int | None = None,
    min_rows: int = 30,
    max_rows: int | None = None,
    words: int | None = None,
    tags: int | None = None,
    workers: int | None = None,
    rows: int = 10,
    validation: float | int | None = None,
    test: float | int | None = None,
    seed: int = 0,
) -> Federation:
    """The words of a package's description, and which tags it has; a client is a maintainer, or a worker of one.

    Without `workers`, the clients are the maintainers with `min_rows` packages or more, or `clients` of them; of one
    with more than `max_rows`, so many are drawn. `validation` and `test` are shares of their rows. With `workers`, the
    two largest maintainers are dealt out: the first half of the workers has `rows` training rows each of the one, the
    others of the other. The workers of a maintainer share its held-out rows: `validation` of them, and at most `test`.
    `words` and `tags` keep the most common.
    """
    integer("seed", seed)
    file = published_file("debtags", "debtags.json") if path is None else existing_path("path", path)
    x, y, names = parsed(read_packages, [file])
    kept = _most("words", words, x.shape[1]), _most("tags", tags, y.shape[1])
    x, y = x[:, _commonest(x, kept[0])], y[:, _commonest(y, kept[1])]
    owned = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
    given: dict[str, object] = {} if path is None else {"path": str(path)}
    given |= {"words": kept[0], "tags": kept[1], "seed": seed}
    if workers is None:
        shares = fractions(*_or(SHARES, validation, test))
        sizes = {name: len(own) for name, own in owned.items()}
        chosen = natural_clients(sizes, clients, min_rows, seed, where=str(file), what="maintainers")
        if max_rows is not None:
            most = integer("max_rows", max_rows, integer("min_rows", min_rows, 1))
            owned = {name: np.sort(stream(seed, "rows", name).permutation(owned[name])[:most]) for name in chosen}
        parts = split_at_random(chosen, [owned[name] for name in chosen], y, *shares, seed)
        given |= {"clients": clients, "min_rows": min_rows, "max_rows": max_rows}
        given |= {"validation": shares[0], "test": shares[1]}
    else:
        if clients is not None:
            raise PolyfedError("debtags: clients and workers exclude each other: give one of them")
        counts = _or(COUNTS, validation, test)
        held = (integer("validation", counts[0]), integer("test", counts[1]))
        chosen, parts = _dealt(owned, integer("workers", workers, 2), integer("rows", rows, 1), held, seed)
        given |= {"workers": workers, "rows": rows, "validation": held[0], "test": held[1]}
    return federation_of_rows(x, y, chosen, parts, classes=None, label_names=None, source={"name": "debtags", **given})


def read_packages(files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(words, tags, maintainer) of every package."""
    [file] = files
    try:
        read = json.loads(file.read_text())
        rows, words, tags = (read[name] for name in ("rows", "words", "tags"))
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PolyfedError(f"{file}: not a debtags file with rows, words and tags ({error})") from None
    x, y = np.zeros((len(rows), len(words)), np.uint8), np.zeros((len(rows), len(tags)), np.uint8)
    for place, row in enumerate(rows):
        try:
            _, mine, theirs = row
            x[place, mine], y[place, theirs] = PRESENT, 1
        except (ValueError, TypeError, IndexError) as error:
            raise PolyfedError(f"{file}: row {place} is not [client, word ids, tag ids] ({error})") from None
    return x, y, np.array([str(row[0]) for row in rows])


def _or(usual: tuple[float, float], *given: float | None) -> tuple[float, float]:
    first, second = (default if value is None else value for default, value in zip(usual, given, strict=True))
    return first, second


def _most(name: str, value: int | None, there: int) -> int:
    if value is not None and integer(name, value, 2) > there:
        raise PolyfedError(f"{name} must be at most the {there:,} of the file, found {value:,}")
    return there if value is None else value


def _commonest(table: np.ndarray, count: int) -> np.ndarray:
    """The columns with the most rows, in their order; of equal ones, the first."""
    often = np.count_nonzero(table, axis=0)
    return np.sort(np.argsort(-often, kind="stable")[:count])


def _dealt(
    owned: dict[str, np.ndarray], workers: int, rows: int, held: tuple[int, int], seed: int
) -> tuple[list[str], dict[str, Rows]]:
    """Workers' names and rows. A maintainer's packages are drawn by (seed, its name): held-out rows first."""
    largest = sorted(owned, key=lambda name: -len(owned[name]))[:2]
    names: list[str] = []
    parts: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    for place, name in enumerate(largest):
        count = (workers + 1 - place) // 2
        needed = count * rows
        spare = len(owned[name]) - needed
        # Where there are too few packages for all held-out rows, test goes short: the choice by validation is as good.
        sizes = (held[0], min(held[1], spare - held[0]))
        if (sizes[1] < 1 and held[1]) or spare < held[0]:
            raise PolyfedError(
                f"debtags: {count} workers with {rows} rows and {held[0]} rows for validation leave no test rows of "
                f"the {len(owned[name])} of {name}"
            )
        drawn = stream(seed, "deal", name).permutation(owned[name])
        validation, test, train = np.split(drawn[: sum(sizes) + needed], np.cumsum(sizes))
        for worker, own in enumerate(np.split(train, count)):
            names.append(f"{name}/{worker:03d}")
            for part, mine in zip(PARTS, (own, validation, test), strict=True):
                parts[part].append(np.sort(mine))
    return names, dict(parts)
