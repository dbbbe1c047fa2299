"""A federation from arrays: every client is checked, the rows are copied once, labelled and split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.aligned import take
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.labels import as_targets, encode
from polyfed.data.names import ClientNames
from polyfed.data.option_checks import fractions, integer
from polyfed.data.schemes import by_column
from polyfed.data.split import PARTS, Pair, ReadOptions, Split, offsets_of, split_rows

if TYPE_CHECKING:
    from polyfed.data.federation import Federation

ClientRows = Sequence[ArrayLike] | Mapping[str, Sequence[ArrayLike] | None]
"""(X, y), or {"train": (X, y), "validation": ..., "test": ...}."""


def from_arrays(
    cls: type[Federation],
    clients: Sequence[ClientRows] | Mapping[str, ClientRows],
    *,
    names: Sequence[str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    classes: int | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
    source: dict[str, object] | None = None,
) -> Federation:
    """See `Federation.from_arrays`."""
    validation, test = fractions(validation, test)
    integer("seed", seed)
    names, entries = _named(clients, names)
    given = [isinstance(entry, Mapping) for entry in entries]
    if any(given) and not all(given):
        raise PolyfedError(f"client {names[given.index(False)]!r} has no given splits while others have")
    explicit = all(given)
    parts = PARTS if explicit else ("rows",)
    # Part by part, client by client: one flat order in which every part is a contiguous block.
    pairs = [
        None if (pair := _part(entry, part, name)) is None else as_pair(pair, name, part)
        for part in parts
        for name, entry in zip(names, entries, strict=True)
    ]
    owners = [(name, part) for part in parts for name in names]
    x, y, offsets = _stack(pairs, owners)
    blocks = offsets.reshape(-1)[:: len(names)]
    targets = encode(y, classes, lambda row: _where(row, offsets, owners))
    if explicit:
        rows = {}
        for i, part in enumerate(PARTS):
            local = offsets[i * len(names) : (i + 1) * len(names) + 1]
            rows[part] = (slice(blocks[i], blocks[i + 1]), local - local[0])
        _check_given(names, {part: np.diff(local) for part, (_, local) in rows.items()})
    else:
        for name, size in zip(names, np.diff(offsets), strict=True):
            if size == 0:
                raise PolyfedError(f"client {name!r} is empty, expected at least one row")
        rows = split_rows(names, np.diff(offsets), targets.y, validation=validation, test=test, seed=seed)
    train, held_validation, held_test = (
        Split(take(x, rows[p][0]), take(targets.y, rows[p][0]), rows[p][1]) for p in PARTS
    )
    return cls(
        clients=tuple(names),
        train=train,
        validation=held_validation,
        test=held_test,
        classes=targets.classes,
        label_names=targets.label_names,
        columns={name: _column(name, values, len(names)) for name, values in (columns or {}).items()},
        source=targets.described({"name": "arrays"} if source is None else source),
    )


def from_owned_rows(
    cls: type[Federation],
    owner: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    *,
    source: dict[str, object],
    **options: Unpack[ReadOptions],
) -> Federation:
    """The federation of rows that lie together, each with the name or number of the client that owns it."""
    for name, array in (("client", owner), ("target", y), ("features", x)):
        if array.ndim < 1 or len(array) != len(owner):
            amount = f"{len(array)} entries" if array.ndim else "a single value"
            raise PolyfedError(f"the {name} array has {amount}, expected one for each of {owner.size} rows")
    if owner.ndim != 1 or owner.dtype.kind not in "iuUSb":
        raise PolyfedError(
            f"the client array has shape {owner.shape} and type {owner.dtype}, expected a name or a number per row"
        )
    if not len(owner):
        raise PolyfedError("there are no rows")
    groups = by_column(np.char.decode(owner) if owner.dtype.kind == "S" else owner)
    flat = x.reshape(len(x), 1) if x.ndim == 1 else x
    return from_arrays(cls, {name: (flat[rows], y[rows]) for name, rows in groups.items()}, source=source, **options)


def _named(
    clients: Sequence[ClientRows] | Mapping[str, ClientRows], names: Sequence[str] | None
) -> tuple[list[str], list[ClientRows]]:
    if isinstance(clients, Mapping):
        if names is not None:
            raise PolyfedError("names cannot be given beside a mapping of clients, whose keys are the names")
        names, entries = [str(name) for name in clients], list(clients.values())
    else:
        if not isinstance(clients, Sequence):
            raise PolyfedError(f"clients must be a list or a mapping of (X, y) pairs, found {type(clients).__name__}")
        entries = list(clients)
        names = list(ClientNames(len(entries))) if names is None else [str(name) for name in names]
    if not entries:
        raise PolyfedError("a federation needs at least one client, found none")
    if len(names) != len(entries):
        raise PolyfedError(f"found {len(names)} names for {len(entries)} clients, expected one name per client")
    return names, entries


def _part(entry: ClientRows, part: str, name: str) -> Sequence[ArrayLike] | None:
    if not isinstance(entry, Mapping):
        return entry
    for key in entry:
        if key not in PARTS:
            raise PolyfedError(f"client {name!r} has an unknown split {key!r}{suggestion(str(key), PARTS)}")
    if part == "train" and entry.get("train") is None:
        raise PolyfedError(f"client {name!r} has no split 'train'")
    return entry.get(part)


def as_pair(pair: object, name: str, part: str) -> Pair:
    """A client's rows of a part as (X, y), checked."""
    what = f"client {name!r}" + ("" if part == "rows" else f", {part}")
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise PolyfedError(f"{what} must be a pair (X, y), found {type(pair).__name__}")
    x, y = _features(pair[0], f"X of {what}"), as_targets(pair[1], f"y of {what}")
    if len(x) != len(y):
        raise PolyfedError(f"{what} has {len(x)} rows in X and {len(y)} in y, expected equal numbers")
    return x, y


def _features(values: object, what: str) -> np.ndarray:
    """Images (uint8) and floating point stay, other integers (token ids) become int32, booleans float64."""
    try:
        x = np.asarray(values)
    except ValueError:
        raise PolyfedError(f"{what} is ragged, expected an array of shape (rows, features)") from None
    if x.ndim < 2:
        raise PolyfedError(f"{what} has shape {x.shape}, expected (rows, features) or more axes")
    kind = x.dtype.kind
    if kind not in "biuf":
        raise PolyfedError(f"{what} has type {x.dtype}, expected numbers")
    if kind == "b":
        return x.astype(np.float64)
    if kind == "f":
        return x.astype({2: np.float32, 4: np.float32}.get(x.dtype.itemsize, np.float64), copy=False)
    if x.dtype == np.uint8:
        return x
    limits = np.iinfo(np.int32)
    if x.size and (x.min() < limits.min or x.max() > limits.max):
        raise PolyfedError(f"{what} holds integers beyond 32 bits, expected token ids or floating point")
    return x.astype(np.int32)


def _stack(pairs: list[Pair | None], owners: list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One flat (x, y, offsets) of all the pairs, which must agree in shape; a None counts as no rows."""
    first, (x_like, y_like) = next((i, pair) for i, pair in enumerate(pairs) if pair is not None)
    for pair, (name, part) in zip(pairs, owners, strict=True):
        if pair is None:
            continue
        for letter, array, like in (("X", pair[0], x_like), ("y", pair[1], y_like)):
            if array.shape[1:] != like.shape[1:]:
                raise PolyfedError(
                    f"{letter} of client {name!r}{'' if part == 'rows' else f', {part},'} has rows of shape "
                    f"{array.shape[1:]}, expected {like.shape[1:]} as in client {owners[first][0]!r}"
                )
    filled = [pair for pair in pairs if pair is not None]
    text = [pair[1].dtype.kind in "U" for pair in filled]
    if any(text) and not all(text):
        raise PolyfedError("the target is text for some clients and numbers for others, expected one kind")
    x = np.concatenate([pair[0] for pair in filled])
    y = np.concatenate([pair[1] for pair in filled])
    offsets = offsets_of([0 if pair is None else len(pair[0]) for pair in pairs])
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        for row in np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[:1]:
            values = x[row].ravel()
            column = int(np.flatnonzero(~np.isfinite(values))[0])
            raise PolyfedError(
                f"X of {_where(row, offsets, owners)} has {values[column]} in feature {column}, expected finite numbers"
            )
    return x, y, offsets


def _where(row: int, offsets: np.ndarray, owners: list[tuple[str, str]]) -> str:
    owner = int(np.searchsorted(offsets, row, side="right")) - 1
    name, part = owners[owner]
    return f"client {name!r}, {'' if part == 'rows' else f'{part} '}row {row - offsets[owner]} (counted from 0)"


def _check_given(names: Sequence[str], sizes: dict[str, np.ndarray]) -> None:
    for client in np.flatnonzero(sizes["train"] == 0)[:1]:
        raise PolyfedError(f"client {names[client]!r} is empty, expected at least one training row")
    if sizes["test"].any():
        for client in np.flatnonzero(sizes["test"] == 0)[:1]:
            raise PolyfedError(f"client {names[client]!r} has no test rows while others have, expected at least one")


def _column(name: str, values: ArrayLike, clients: int) -> np.ndarray:
    column = np.asarray(values)
    if column.shape != (clients,):
        raise PolyfedError(
            f"column {name!r} has shape {column.shape}, expected one value for each of {clients} clients"
        )
    return column if column.dtype.kind in "biuf" else column.astype(np.str_)
