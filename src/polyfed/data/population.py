"""A population: clients whose rows are read or made on request, so that they need not be in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import ClientRows, as_pair
from polyfed.data.federation import Federation
from polyfed.data.formats.npy import from_npy
from polyfed.data.labels import client_targets
from polyfed.data.names import ClientNames
from polyfed.data.option_checks import PathLike, fractions, integer
from polyfed.data.split import PARTS, HeldOut, Pair, Split, check_split, client_rows, offsets_of

Reader = Callable[[int], ClientRows]
"""client -> (X, y), or {"train": (X, y), "validation": ..., "test": ...}: the same rows at every call"""
DIGESTED = 16
"""How many clients' rows are part of a population's digest."""


@dataclass(frozen=True, eq=False)
class Part:
    """One part of all clients of a population: how many rows each has, and the rows of some, read on request."""

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
    """Named clients like those of a `Federation`, but no row stays in memory.

    `rows(client)` gives the rows of the client at that position: (X, y), from which the shares `validation` and `test`
    are held out as in `Federation.from_arrays`, or {"train": (X, y), "validation": ..., "test": ...}. It must give the
    same rows at every call, and is called from another thread while the devices compute. `sizes` says how many rows
    each client has: an array with an entry per client, or, for given parts, such an array for each part.

    `classes` counts the classes of labels 0..classes-1; it is None for regression and for binary labels -1 and +1.
    """

    feature_names: tuple[str, ...] | None = None

    def __init__(
        self,
        rows: Reader,
        sizes: ArrayLike | Mapping[str, ArrayLike | None],
        *,
        classes: int | None = None,
        names: Sequence[str] | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        columns: Mapping[str, ArrayLike] | None = None,
        label_names: Sequence[str] | None = None,
        source: dict[str, object] | None = None,
    ) -> None:
        validation, test = fractions(validation, test)
        self._rows = rows
        self._shares: HeldOut = {"validation": validation, "test": test, "seed": integer("seed", seed)}
        self._given = isinstance(sizes, Mapping)
        rows_of = _counts(sizes.get("train") if isinstance(sizes, Mapping) else sizes)
        clients = len(rows_of)
        self.clients: Sequence[str] = ClientNames(clients) if names is None else tuple(names)
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
        self.source: dict[str, object] = {"name": "population"} if source is None else source
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
        return from_npy(cls, path, classes=classes, validation=validation, test=test, seed=seed)

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
        """A split without rows, in the shape and type of all rows."""
        assert self._like is not None
        x, y = self._like
        return Split(x[:0], y[:0], np.zeros(1, np.int64))

    @property
    def some_targets(self) -> np.ndarray:
        """The targets of the first few clients."""
        return np.concatenate([self.train.of(client)[1].ravel() for client in range(min(10, len(self)))])

    def label_values(self) -> None:
        """None: the distinct targets are not known, because not all rows are read."""

    @property
    def notes(self) -> list[str]:
        """What a reader should know about the data."""
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
        name, rows = self.clients[client], self._rows(int(client))
        if self._given:
            if not isinstance(rows, Mapping):
                raise PolyfedError(f"client {name!r}: rows must be given part by part, as the sizes are")
            parts = {part: None if rows.get(part) is None else self._pair(rows[part], name, part) for part in PARTS}
            none = self._like or parts["train"]
            if none is None:
                raise PolyfedError(f"client {name!r} has no split 'train'")
            parts = {part: (none[0][:0], none[1][:0]) if pair is None else pair for part, pair in parts.items()}
        else:
            x, y = self._pair(rows, name, "rows")
            if len(x) != (size := sum(int(self.split(part).sizes[client]) for part in PARTS)):
                raise PolyfedError(f"client {name!r} has {len(x)} rows, expected {size} as its size says")
            parts = {part: (x[own], y[own]) for part, own in client_rows(name, y, **self._shares).items()}
        for part, (x, _) in parts.items():
            if len(x) != self.split(part).sizes[client]:
                size = self.split(part).sizes[client]
                raise PolyfedError(f"client {name!r} has {len(x)} {part} rows, expected {size} as its size says")
        return parts

    def select(self, clients: Sequence[int] | np.ndarray) -> Federation:
        """The federation of these clients (positions) in this order, in memory."""
        chosen = [int(client) for client in clients]
        read = [self.read(client) for client in chosen]
        train, validation, test = (_stacked([parts[part] for parts in read]) for part in PARTS)
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

    def redrawn(self, seed: int) -> NoReturn:
        raise PolyfedError(
            "drawing the splits anew takes the rows of all clients at once, and those of a population are read client "
            f"by client; take some of {len(self)} clients into memory: population.select(range(100)).redrawn({seed})"
        )

    def summary(self) -> NoReturn:
        raise PolyfedError(
            f"a summary reads all rows, and the {len(self)} clients of a population are read when they are needed; "
            "take some into memory: population.select(range(100)).summary()"
        )

    def digest(self, parts: Sequence[str] = PARTS) -> str:
        """A digest of the names, of all sizes, and of the rows of a few clients from the first to the last.

        Of all splits, or of these.
        """
        named = f"{len(self)} numbered" if self._places is None else "\0".join(self.clients)
        digest = hashlib.blake2b(named.encode(), digest_size=16)
        digest.update(
            json.dumps([self.classes, self.label_names, *map(str, (self.like.x.dtype, self.like.y.dtype))]).encode()
        )
        for part in parts:
            digest.update(np.ascontiguousarray(self.split(part).sizes, np.int64).data)
        for client in np.unique(np.linspace(0, len(self) - 1, DIGESTED).astype(int)):
            rows = self.read(client)
            for part in parts:
                for array in rows[part]:
                    digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def _pair(self, pair: object, name: str, part: str) -> Pair:
        x, y = as_pair(pair, name, part)
        what = f"client {name!r}" + ("" if part == "rows" else f", {part}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))[0])
            raise PolyfedError(f"X of {what} is not finite in row {row} (counted from 0)")
        y = client_targets(y, self.classes, what)
        for letter, array, like in zip("Xy", (x, y), self._like or (x, y), strict=True):
            if array.shape[1:] != like.shape[1:] or array.dtype != like.dtype:
                raise PolyfedError(
                    f"{letter} of {what} has rows of shape {array.shape[1:]} and type {array.dtype}, "
                    f"expected {like.shape[1:]} and {like.dtype} as in client {self.clients[0]!r}"
                )
        return x, y


def _counts(sizes: ArrayLike | None, clients: int | None = None) -> np.ndarray:
    """Rows per client as int64."""
    counts = np.asarray(sizes)
    if counts.ndim != 1 or not len(counts) or counts.dtype.kind not in "iu" or counts.min() < 0:
        raise PolyfedError(f"sizes must be arrays with a whole number of rows for each client, found {sizes!r:.60}")
    if clients is not None and len(counts) != clients:
        raise PolyfedError(f"sizes must be of the same clients in every part, found {len(counts)} and {clients}")
    return counts.astype(np.int64)


def _stacked(pairs: Sequence[Pair]) -> Split:
    offsets = offsets_of([len(x) for x, _ in pairs])
    return Split(np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs]), offsets)
