"""A federation: every client's training, validation and test rows, each part in flat arrays with offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core import html
from polyfed.core.aligned import take
from polyfed.core.errors import PolyfedError, own_names, suggestion
from polyfed.data.arrays import ClientRows, from_arrays
from polyfed.data.formats.folder import from_folder
from polyfed.data.formats.hugging_face import HuggingFaceSplit, from_huggingface
from polyfed.data.formats.npz import from_npz
from polyfed.data.formats.storage import load, save
from polyfed.data.formats.tables import CsvOptions, TableOptions, from_dataframe, from_table_file
from polyfed.data.option_checks import PathLike, integer
from polyfed.data.split import PARTS, Pair, ReadOptions, Split, redrawn_rows
from polyfed.data.summary import FederationSummary, summarize
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.sums import MIN_COUNT

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class Federation:
    """Named clients with their training, validation and test rows.

    `classes` counts the classes of labels 0..classes-1; it is None for regression and for binary labels -1 and +1.
    """

    clients: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    classes: int | None
    label_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # facts, one value per client
    source: dict[str, object] = field(default_factory=dict)  # where it came from, JSON-able
    preparation: Preparation | None = None  # of a table: how its columns became features

    def __post_init__(self) -> None:
        if not self.clients:
            raise PolyfedError("a federation needs at least one client, found none")
        seen: set[str] = set()
        for name in self.clients:
            if not isinstance(name, str) or not name:
                raise PolyfedError(f"a client's name must be a non-empty string, found {name!r}")
            if name in seen:
                raise PolyfedError(f"client names must be unique, found {name!r} more than once")
            seen.add(name)
        for part in PARTS:
            split = self.split(part)
            if len(split.offsets) != len(self) + 1:
                raise PolyfedError(f"{part} has {len(split.offsets) - 1} clients, expected {len(self)}")
            if split.x.shape[1:] != self.feature_shape or split.x.dtype != self.train.x.dtype:
                raise PolyfedError(
                    f"{part} rows have shape {split.x.shape[1:]} and type {split.x.dtype}, "
                    f"expected {self.feature_shape} and {self.train.x.dtype} as in train"
                )
        for client in np.flatnonzero(self.train.sizes == 0)[:1]:
            raise PolyfedError(f"client {self.clients[client]!r} has no training rows")
        for name, values in self.columns.items():
            if np.shape(values) != (len(self),):
                raise PolyfedError(f"column {name!r} has shape {np.shape(values)}, expected one value per client")

    def __len__(self) -> int:
        return len(self.clients)

    def __repr__(self) -> str:
        rows = ", ".join(f"{part}={len(self.split(part).x)}" for part in PARTS)
        return f"Federation({len(self)} clients, {rows}, features={self.feature_shape}, classes={self.classes})"

    def _repr_html_(self) -> str:
        """For notebooks: a row per client."""
        rows = sum(len(self.split(part).x) for part in PARTS)
        kind = "real numbers" if self.classes is None else f"{self.classes} classes"
        title = f"Federation: {len(self):,} clients, {rows:,} rows, features {self.feature_shape}, {kind}"
        sizes = [self.split(part).sizes.tolist() for part in PARTS]
        return html.page(title, html.table(("client", *PARTS), list(zip(self.clients, *sizes, strict=True))))

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.train.x.shape[1:]

    @property
    def like(self) -> Split:
        """A split without rows, in the shape and type of the others."""
        return Split(self.train.x[:0], self.train.y[:0], np.zeros(1, np.int64))

    @property
    def some_targets(self) -> np.ndarray:
        """The first few training targets."""
        return self.train.y.ravel()[:1000]

    def label_values(self) -> np.ndarray:
        """The distinct targets, in ascending order."""
        return np.unique(np.concatenate([np.unique(self.split(part).y) for part in PARTS]))

    def index(self, name: str) -> int:
        """The position of a client."""
        if name not in self.clients:
            raise PolyfedError(f"there is no client {name!r}{suggestion(str(name), self.clients)}")
        return self.clients.index(name)

    def split(self, name: str) -> Split:
        """The part called "train", "validation" or "test"."""
        if name not in PARTS:
            raise PolyfedError(f"there is no split {name!r}{suggestion(str(name), PARTS)}")
        return getattr(self, name)

    def read(self, client: int) -> dict[str, Pair]:
        """One client's rows in every part."""
        return {part: self.split(part).of(client) for part in PARTS}

    def select(self, clients: Sequence[int] | np.ndarray) -> Federation:
        """The federation of these clients (positions), in this order."""
        chosen = np.asarray(clients, dtype=np.int64)
        return Federation(
            clients=tuple(self.clients[i] for i in chosen),
            train=self.train.select(chosen),
            validation=self.validation.select(chosen),
            test=self.test.select(chosen),
            classes=self.classes,
            label_names=self.label_names,
            feature_names=self.feature_names,
            columns={name: np.asarray(values)[chosen] for name, values in self.columns.items()},
            source=self.source,
            preparation=self.preparation,
        )

    def redrawn(self, seed: int) -> Federation:
        """The same clients and rows with training, validation and test rows drawn anew.

        Each client's rows of all three parts are put together, also where they were given or a published test set,
        and shared out into parts of the same sizes, its labels spread evenly over them. The draw depends on the seed
        and on the client's name alone. Means, scales and commonest values of a prepared table are those of the new
        training rows; its categories stay.
        """
        integer("seed", seed)
        n = len(self)
        owner = np.concatenate([np.repeat(np.arange(n), self.split(part).sizes) for part in PARTS])
        order = np.argsort(owner, kind="stable")
        x, y = (np.concatenate([getattr(self.split(part), name) for part in PARTS]) for name in "xy")
        drawn = redrawn_rows(self.clients, {part: self.split(part).sizes for part in PARTS}, y[order], seed)
        preparation = self.preparation
        if preparation is not None and not preparation.is_plain:
            learned = preparation.relearned(x[order[drawn["train"][0]]])
            x, preparation = preparation.recoded(x, learned), learned
        parts = {
            part: Split(take(x, order[rows]), take(y, order[rows]), offsets) for part, (rows, offsets) in drawn.items()
        }
        return replace(self, **parts, preparation=preparation, source={**self.source, "redrawn": seed})

    @property
    def notes(self) -> list[str]:
        """What a reader should know: how labels were mapped, and where a file differs from the published one."""
        labels, note = self.source.get("labels"), self.source.get("note")
        mapped = [] if labels in (None, "-1 -> -1, 1 -> +1") else [f"labels {labels}"]
        said = [] if self.preparation is None else self.preparation.told()
        return mapped + ([] if note is None else [str(note)]) + said

    def digest(self, parts: Sequence[str] = PARTS) -> str:
        """A digest of the data: names, rows and splits; of all splits, or of these."""
        digest = hashlib.blake2b("\0".join(self.clients).encode(), digest_size=16)
        for part in parts:
            split = self.split(part)
            for array in (split.offsets, split.x, split.y):
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def summary(self) -> FederationSummary:
        """Sizes, label skew and feature shift, overall and per client."""
        return summarize(self)

    @classmethod
    @own_names
    def from_arrays(
        cls,
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
        """From (X, y) pairs, or from dicts {"train": (X, y), "validation": ..., "test": ...} with given splits.

        A mapping from name to pair or dict names the clients. The shares `validation` and `test` are held out of each
        client's rows; given splits stay as they are.
        """
        return from_arrays(
            cls,
            clients,
            names=names,
            validation=validation,
            test=test,
            classes=classes,
            columns=columns,
            seed=seed,
            source=source,
        )

    @classmethod
    @own_names
    def from_dataframe(
        cls,
        df: pandas.DataFrame,
        *,
        client: str,
        target: str,
        validation: float = 0.1,
        test: float = 0.2,
        features: Sequence[str] | None = None,
        seed: int = 0,
        classes: int | None = None,
        prepare: bool | None = None,
        columns: Mapping[str, object] | None = None,
        min_count: int = MIN_COUNT,
        only: Sequence[str] | None = None,
    ) -> Federation:
        """From a table with a column of client names, a target column and feature columns of any kind.

        `prepare` makes features of them: None where they are not complete numbers already, False never. `columns` says
        what they hold where their cells do not tell; a category that fewer than `min_count` training rows of a client
        have is not named. `only`: the clients to take; all by default.
        """
        return from_dataframe(
            cls,
            df,
            client=client,
            target=target,
            validation=validation,
            test=test,
            features=features,
            seed=seed,
            classes=classes,
            prepare=prepare,
            columns=columns,
            min_count=min_count,
            only=only,
        )

    @classmethod
    @own_names
    def from_csv(
        cls,
        path: PathLike,
        *,
        client: str,
        target: str,
        validation: float = 0.1,
        test: float = 0.2,
        features: Sequence[str] | None = None,
        seed: int = 0,
        classes: int | None = None,
        prepare: bool | None = None,
        columns: Mapping[str, object] | None = None,
        min_count: int = MIN_COUNT,
        only: Sequence[str] | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
    ) -> Federation:
        """From a CSV file with a header, a client column and a target column; see `from_dataframe`."""
        options = TableOptions(
            validation=validation,
            test=test,
            features=features,
            seed=seed,
            classes=classes,
            prepare=prepare,
            columns=columns,
            min_count=min_count,
            only=only,
        )
        dialect = CsvOptions(separator=separator, encoding=encoding, decimal=decimal)
        return from_table_file(cls, path, "csv", client=client, target=target, dialect=dialect, **options)

    @classmethod
    @own_names
    def from_parquet(
        cls,
        path: PathLike,
        *,
        client: str,
        target: str,
        validation: float = 0.1,
        test: float = 0.2,
        features: Sequence[str] | None = None,
        seed: int = 0,
        classes: int | None = None,
        prepare: bool | None = None,
        columns: Mapping[str, object] | None = None,
        min_count: int = MIN_COUNT,
        only: Sequence[str] | None = None,
    ) -> Federation:
        """From a Parquet file with a client column and a target column; see `from_dataframe`."""
        options = TableOptions(
            validation=validation,
            test=test,
            features=features,
            seed=seed,
            classes=classes,
            prepare=prepare,
            columns=columns,
            min_count=min_count,
            only=only,
        )
        return from_table_file(cls, path, "parquet", client=client, target=target, **options)

    @classmethod
    @own_names
    def from_folder(
        cls,
        path: PathLike,
        *,
        target: str,
        validation: float = 0.1,
        test: float = 0.2,
        features: Sequence[str] | None = None,
        seed: int = 0,
        classes: int | None = None,
        prepare: bool | None = None,
        columns: Mapping[str, object] | None = None,
        min_count: int = MIN_COUNT,
        only: Sequence[str] | None = None,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
    ) -> Federation:
        """From a folder with one CSV, Parquet or npz file per client; the file's stem is the client's name."""
        options = TableOptions(
            validation=validation,
            test=test,
            features=features,
            seed=seed,
            classes=classes,
            prepare=prepare,
            columns=columns,
            min_count=min_count,
            only=only,
        )
        dialect = CsvOptions(separator=separator, encoding=encoding, decimal=decimal)
        return from_folder(cls, path, target=target, dialect=dialect, **options)

    @classmethod
    @own_names
    def from_npz(
        cls,
        path: PathLike,
        *,
        client: str = "client",
        target: str = "y",
        features: str = "x",
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
    ) -> Federation:
        """From an npz file with the arrays `features` (rows, ...), `target` and `client`, all with an entry per row."""
        options = ReadOptions(validation=validation, test=test, seed=seed, classes=classes)
        return from_npz(cls, path, client=client, target=target, features=features, **options)

    @classmethod
    @own_names
    def from_huggingface(
        cls,
        dataset: HuggingFaceSplit,
        *,
        client: str,
        target: str,
        features: Sequence[str] | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        classes: int | None = None,
    ) -> Federation:
        """From one split of a Hugging Face dataset; features are all other columns, or those that are named."""
        options = ReadOptions(validation=validation, test=test, seed=seed, classes=classes)
        return from_huggingface(cls, dataset, client=client, target=target, features=features, **options)

    def save(self, path: PathLike) -> None:
        """Write one safetensors file, atomically."""
        save(self, path)

    @classmethod
    def load(cls, path: PathLike) -> Federation:
        """Read a file that `save` wrote."""
        return load(cls, path)
