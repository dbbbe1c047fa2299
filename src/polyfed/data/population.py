"""A population: clients whose rows are read or made when they are asked for, so that they need not be in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import as_pair
from polyfed.data.federation import Federation, PathLike, Split
from polyfed.data.labels import client_targets
from polyfed.data.options import fractions, integer
from polyfed.data.split import PARTS, check_split, client_rows

Pair = tuple[np.ndarray, np.ndarray]
Reader = Callable[[int], Any]
"""client -> (X, y), or {"train": (X, y), "validation": ..., "test": ...}: the same rows whenever it is asked"""
DIGESTED = 16
"""The clients whose rows are part of a population's digest."""


class Names(Sequence[str]):
    """client-000, client-001, ...: made when they are asked for."""

    def __init__(self, clients: int) -> None:
        self._clients = clients

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._clients)))
        if not -self._clients <= index < self._clients:
            raise IndexError(index)
        return f"client-{index % self._clients:03d}"

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        number = value.removeprefix("client-")
        stop = self._clients if stop is None else stop
        if number.isdecimal() and start <= int(number) < stop and self[int(number)] == value:
            return int(number)
        raise ValueError(value)

    def __contains__(self, value: object) -> bool:
        try:
            return isinstance(value, str) and self.index(value) >= 0
        except ValueError:
            return False


@dataclass(frozen=True, eq=False)
class Part:
    """One part of all clients of a population: how many rows each has, and the rows of some, read when asked for."""

    population: Population
    name: str
    sizes: np.ndarray  # rows per client

    @property
    def rows(self) -> int:
        """The rows of all clients together."""
        return int(self.sizes.sum())

    @property
    def x(self) -> NoReturn:
        self._refuse()

    @property
    def y(self) -> NoReturn:
        self._refuse()

    @property
    def offsets(self) -> NoReturn:
        self._refuse()

    def of(self, client: int) -> Pair:
        """(x, y) of one client."""
        return self.population.read(client)[self.name]

    def select(self, clients: Sequence[int] | np.ndarray) -> Split:
        """The rows of these clients, in this order."""
        return self.population.select(clients).split(self.name)

    def _refuse(self) -> NoReturn:
        raise PolyfedError(
            "this needs the rows of all clients at once, and those of a population are read client by client; "
            "take some clients into memory with population.select(clients)"
        )


class Population:
    """Named clients like those of a `Federation`, but no row is kept.

    `rows(client)` gives the rows of the client at that place, (X, y), of which the shares `validation` and `test` are
    held out as in `Federation.from_arrays`; or {"train": (X, y), "validation": ..., "test": ...}. It must give the same
    rows whenever it is asked, and is called from another thread while the devices compute. `sizes` says how many rows
    each client has: an array with an entry per client, or where the parts are given, such an array for each part.

    `classes` counts the classes of labels 0..classes-1; it is None for regression and for binary labels -1 and +1.
    """

    feature_names: tuple[str, ...] | None = None

    def __init__(
        self,
        rows: Reader,
        sizes: Any,
        *,
        classes: int | None = None,
        names: Sequence[str] | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        columns: Mapping[str, Any] | None = None,
        label_names: Sequence[str] | None = None,
        source: dict[str, Any] | None = None,
    ) -> None:
        validation, test = fractions(validation, test)
        self._rows, self._shares = rows, {"validation": validation, "test": test, "seed": integer("seed", seed)}
        self._given = isinstance(sizes, Mapping)
        rows_of = _counts(sizes.get("train") if isinstance(sizes, Mapping) else sizes)
        clients = len(rows_of)
        self.clients: Sequence[str] = Names(clients) if names is None else tuple(names)
        self._places = None if names is None else {name: i for i, name in enumerate(self.clients)}
        if len(self.clients) != clients or len(self._places or range(clients)) != clients:
            raise PolyfedError(f"names must be one for each of {clients} clients, all different")
        if isinstance(sizes, Mapping):
            none = np.zeros(clients, np.int64)
            parts = {part: none if sizes.get(part) is None else _counts(sizes[part], clients) for part in PARTS}
        else:
            parts = check_split(self.clients, rows_of, validation=validation, test=test)
        self.train, self.validation, self.test = (Part(self, part, parts[part]) for part in PARTS)
        for client in np.flatnonzero(self.train.sizes < 1)[:1]:
            raise PolyfedError(f"client {self.clients[client]!r} has no training rows")
        self.classes = None if classes is None else integer("classes", classes, 1)
        self.label_names = None if label_names is None else tuple(label_names)
        self.columns = {name: np.asarray(values) for name, values in (columns or {}).items()}
        for name, values in self.columns.items():
            if values.shape != (clients,):
                raise PolyfedError(f"column {name!r} has shape {values.shape}, expected one value per client")
        self.source = {"name": "population"} if source is None else source
        self._like: Pair | None = None
        x, y = self.read(0)["train"]
        self._like = x[:0].copy(), y[:0].copy()

    @classmethod
    def of(cls, federation: Federation) -> Population:
        """A federation whose rows go to the devices a cohort at a time, not all at the start."""
        return cls(
            federation.read,
            {part: federation.split(part).sizes for part in PARTS},
            classes=federation.classes,
            names=federation.clients,
            columns=federation.columns,
            label_names=federation.label_names,
            source=federation.source,
        )

    @classmethod
    def from_npy(
        cls,
        path: PathLike,
        *,
        classes: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
    ) -> Population:
        """From a folder with x.npy and y.npy, the rows of all clients one after another, and offsets.npy.

        Client i owns the rows offsets[i] to offsets[i+1]. A file clients.txt may name the clients, one per line.
        """
        from polyfed.data.formats.npy import from_npy

        return from_npy(path, classes=classes, validation=validation, test=test, seed=seed)

    def __len__(self) -> int:
        return len(self.train.sizes)

    def __repr__(self) -> str:
        rows = ", ".join(f"{part}={self.split(part).rows}" for part in PARTS)
        return f"Population({len(self)} clients, {rows}, features={self.feature_shape}, classes={self.classes})"

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.like.x.shape[1:]

    @property
    def like(self) -> Split:
        """No rows, in the shape and type of all."""
        assert self._like is not None
        x, y = self._like
        return Split(x[:0], y[:0], np.zeros(1, np.int64))

    @property
    def some_targets(self) -> np.ndarray:
        """The targets of the first few clients."""
        return np.concatenate([self.train.of(client)[1].ravel() for client in range(min(10, len(self)))])

    def label_values(self) -> None:
        """The different targets: not known, as not all are read."""

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the data."""
        note = self.source.get("note")
        return [] if note is None else [str(note)]

    def index(self, name: str) -> int:
        """The position of a client."""
        try:
            return self.clients.index(name) if self._places is None else self._places[name]
        except (ValueError, KeyError):
            raise PolyfedError(f"there is no client {name!r} among {len(self)}") from None

    def split(self, name: str) -> Part:
        """The part called "train", "validation" or "test"."""
        if name not in PARTS:
            raise PolyfedError(f"there is no split {name!r}{suggestion(str(name), PARTS)}")
        return getattr(self, name)

    def read(self, client: int) -> dict[str, Pair]:
        """One client's rows in every part, checked: their number, shape and type, that they are finite, the labels."""
        name, found = self.clients[client], self._rows(int(client))
        if self._given:
            if not isinstance(found, Mapping):
                raise PolyfedError(f"client {name!r}: rows must be given part by part, as the sizes are")
            parts = {part: None if found.get(part) is None else self._pair(found[part], name, part) for part in PARTS}
            none = self._like or parts["train"]
            if none is None:
                raise PolyfedError(f"client {name!r} has no split 'train'")
            parts = {part: (none[0][:0], none[1][:0]) if pair is None else pair for part, pair in parts.items()}
        else:
            x, y = self._pair(found, name, "rows")
            if len(x) != (size := sum(int(self.split(part).sizes[client]) for part in PARTS)):
                raise PolyfedError(f"client {name!r} has {len(x)} rows, expected {size} as its size says")
            parts = {part: (x[own], y[own]) for part, own in client_rows(name, len(x), **self._shares).items()}
        for part, (x, _) in parts.items():
            if len(x) != self.split(part).sizes[client]:
                size = self.split(part).sizes[client]
                raise PolyfedError(f"client {name!r} has {len(x)} {part} rows, expected {size} as its size says")
        return parts

    def select(self, clients: Sequence[int] | np.ndarray) -> Federation:
        """The federation of these clients (positions) in this order, in memory."""
        chosen = [int(client) for client in clients]
        found = [self.read(client) for client in chosen]
        train, validation, test = (_joined([rows[part] for rows in found]) for part in PARTS)
        return Federation(
            clients=tuple(self.clients[client] for client in chosen),
            train=train,
            validation=validation,
            test=test,
            classes=self.classes,
            label_names=self.label_names,
            columns={name: values[chosen] for name, values in self.columns.items()},
            source=self.source,
        )

    def summary(self) -> NoReturn:
        raise PolyfedError(
            f"a summary reads all rows, and the {len(self)} clients of a population are read when they are needed; "
            "take some into memory: population.select(range(100)).summary()"
        )

    def digest(self) -> str:
        """A digest of the names, of all sizes, and of the rows of a few clients from the first to the last."""
        named = f"{len(self)} numbered" if self._places is None else "\0".join(self.clients)
        digest = hashlib.blake2b(named.encode(), digest_size=16)
        digest.update(
            json.dumps([self.classes, self.label_names, *map(str, (self.like.x.dtype, self.like.y.dtype))]).encode()
        )
        for part in PARTS:
            digest.update(np.ascontiguousarray(self.split(part).sizes, np.int64).data)
        for client in np.unique(np.linspace(0, len(self) - 1, DIGESTED).astype(int)):
            for pair in self.read(client).values():
                for array in pair:
                    digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _pair(self, pair: Any, name: str, part: str) -> Pair:
        x, y = as_pair(pair, name, part)
        what = f"client {name!r}" + ("" if part == "rows" else f", {part}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0])
            raise PolyfedError(f"X of {what} is not finite in row {row} (counted from 0)")
        y = client_targets(y, self.classes, what)
        for letter, found, like in zip("Xy", (x, y), self._like or (x, y), strict=True):
            if found.shape[1:] != like.shape[1:] or found.dtype != like.dtype:
                raise PolyfedError(
                    f"{letter} of {what} has rows of shape {found.shape[1:]} and type {found.dtype}, "
                    f"expected {like.shape[1:]} and {like.dtype} as in client {self.clients[0]!r}"
                )
        return x, y


def _counts(sizes: Any, clients: int | None = None) -> np.ndarray:
    """Rows per client as int64."""
    found = np.asarray(sizes)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu" or found.min() < 0:
        raise PolyfedError(f"sizes must be arrays with a whole number of rows for each client, found {sizes!r:.60}")
    if clients is not None and len(found) != clients:
        raise PolyfedError(f"sizes must be of the same clients in every part, found {len(found)} and {clients}")
    return found.astype(np.int64)


def _joined(pairs: Iterable[Pair]) -> Split:
    pairs = list(pairs)
    offsets = np.concatenate([[0], np.cumsum([len(x) for x, _ in pairs])]).astype(np.int64)
    return Split(np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs]), offsets)
