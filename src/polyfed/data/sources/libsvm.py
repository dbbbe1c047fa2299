"""LIBSVM files: `label index:value index:value ...`, one example a line, indices counted from 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.federation import Federation
from polyfed.data.option_checks import PathLike, check_options, existing_path, integer, option_names, text
from polyfed.data.partitions import partition as apply_partition
from polyfed.data.schemes import scheme_options
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.published import data_folder, published_file

LARGEST = 2**30
"""The most numbers that are laid out densely: 8 GiB."""


@dataclass(frozen=True)
class PublishedFile:
    """The shape of a published file, and what to note about it."""

    features: int
    rows: int
    note: str | None = None


KNOWN = {
    "mushrooms": PublishedFile(112, 8124),
    "a6a": PublishedFile(123, 11220),
    "a6a.t": PublishedFile(123, 21341, "the rows of a9a that are not in a6a; their order may differ from upstream's"),
    "a9a": PublishedFile(123, 32561),
    "w7a": PublishedFile(300, 24692),
    "w7a.t": PublishedFile(300, 25057),
    "w8a": PublishedFile(300, 49749),
    "w6a.ge5": PublishedFile(300, 12292, "incomplete w6a: only the rows with at least 5 features, of 17188"),
    "ijcnn1.num12": PublishedFile(22, 49990, "incomplete ijcnn1: its ten binary columns 1 to 10 are absent"),
}


def libsvm(
    name: str | None = None,
    path: PathLike | None = None,
    clients: int = 8,
    partition: str = "contiguous",
    validation: float = 0.0,
    test: float = 0.0,
    seed: int = 0,
    features: int | None = None,
    **options: object,
) -> Federation:
    """A LIBSVM file shared out over clients; `options` go to the partition.

    `name` is a file of the data folder's `libsvm`, `path` any other one. `features` is the width of the rows: by
    default the published one where it is known, else the largest index. Of two labels the smaller becomes -1 and the
    other +1; three or more whole-numbered labels become 0..C-1; all else are regression targets. `source["labels"]`
    tells which label became which.
    """
    check_options(
        f"libsvm with partition {partition!r}", options, option_names(libsvm)[0] | scheme_options(partition)[0], set()
    )
    integer("clients", clients, 1)
    file = _locate(name, path)
    known = KNOWN.get(name) if name is not None else None
    if features is None and known is not None:
        features = known.features
    x, labels = parsed(_read, [file], features)
    y, mapping = map_labels(labels, file)
    source: dict[str, object] = {
        "name": "libsvm",
        **({"path": str(path)} if name is None else {"dataset": name}),
        "clients": clients,
        "partition": partition,
        "validation": validation,
        "test": test,
        "seed": seed,
        "features": x.shape[1],
        **{key: value for key, value in options.items() if key != "values"},
        "labels": mapping,
    }
    notes = [known.note] if known is not None and known.note else []
    if known is not None and len(y) != known.rows:
        notes.append(f"{len(y)} rows, where the published file has {known.rows}")
    if notes:
        source["note"] = "; ".join(notes)
    return apply_partition(
        x,
        y,
        partition,
        clients,
        seed,
        validation=validation,
        test=test,
        num_classes=None,
        source=source,
        **options,
    )


def read_libsvm(path: PathLike, features: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(x, labels) of a file as dense float64; a mistake in it is refused with its line."""
    path = Path(path)
    if features is not None:
        integer("features", features, 1)
    data = _uncommented(path.read_bytes())
    tokens = _Tokens(path, data)
    values = tokens.numbers()
    first, index, value = tokens.roles()
    rows = np.cumsum(first) - 1
    columns, places = values[index], np.flatnonzero(index)
    wrong = (columns < 1) | (columns != np.floor(columns))
    tokens.refuse(places[wrong], "expected an index that is a whole number, at least 1")
    width = int(columns.max(initial=1)) if features is None else features
    tokens.refuse(places[columns > width], f"expected an index of at most {width}, the number of features")
    count = int(first.sum())
    if count * width > LARGEST:
        raise PolyfedError(f"{path}: {count} rows of {width} features are too many to lay out densely")
    cells = rows[index] * width + columns.astype(np.int64) - 1
    if not (np.diff(cells) > 0).all():  # some row is not in ascending order: is an index there twice?
        order = np.argsort(cells, kind="stable")
        again = order[1:][np.diff(cells[order]) == 0]
        tokens.refuse(places[again], "expected every index once in a row")
    x = np.zeros((count, width))
    x.ravel()[cells] = values[value]
    return x, values[first]


def _read(files: Sequence[Path], features: int | None) -> tuple[np.ndarray, np.ndarray]:
    return read_libsvm(files[0], features)


def map_labels(labels: np.ndarray, where: PathLike) -> tuple[np.ndarray, str]:
    """(targets, a note on which label became which)."""
    values = np.unique(labels)
    if len(values) < 2:
        raise PolyfedError(f"{where}: every row has the label {values[0]:g}, expected at least two labels")
    if len(values) == 2:
        mapping = f"{values[0]:g} -> -1, {values[1]:g} -> +1"
        return np.where(labels == values[0], -1, 1).astype(np.int32), mapping
    if (values == np.floor(values)).all():
        shown = [f"{label:g} -> {code}" for code, label in enumerate(values)]
        mapping = ", ".join(shown if len(shown) <= 10 else [*shown[:3], "...", shown[-1]])
        return np.searchsorted(values, labels).astype(np.int32), mapping
    return labels, "real numbers, as in the file"


def _locate(name: str | None, path: PathLike | None) -> Path:
    if (name is None) == (path is None):
        raise PolyfedError("data source 'libsvm' needs either name (a published file) or path (a file of yours)")
    if path is not None:
        file = existing_path("path", path)
        if not file.is_file():
            raise PolyfedError(f"{file}: a folder, expected a LIBSVM file")
        return file
    name = text("name", name)
    if Path(name).name != name:
        raise PolyfedError(f"name must be the name of a file in the data folder, found {name!r}; use path for others")
    if name not in KNOWN and not (data_folder() / "libsvm" / name).is_file():
        raise PolyfedError(f"there is no LIBSVM file {name!r} in {data_folder() / 'libsvm'}{suggestion(name, KNOWN)}")
    return published_file("libsvm", name)


def _uncommented(data: bytes) -> bytes:
    """The bytes with comments (from # to the line's end) blanked, so that lines keep their numbers."""
    if b"#" not in data:
        return data
    return b"\n".join(line.split(b"#", 1)[0] for line in data.split(b"\n"))


class _Tokens:
    """The numbers of a file as they stand in it: where each begins and ends, and in which line."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.bytes = np.frombuffer(b"\n" + data + b"\n", np.uint8)  # so that every token has neighbours
        blank = (self.bytes <= 32) | (self.bytes == ord(":"))
        edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
        self.starts, self.ends = edges[::2], edges[1::2]
        if not len(self.starts):
            raise PolyfedError(f"{path}: has no rows, expected lines such as '+1 3:1 7:0.5'")
        self.lines = np.searchsorted(np.flatnonzero(self.bytes == ord("\n")), self.starts)  # counted from 1

    def numbers(self) -> np.ndarray:
        """Every token as a finite number."""
        words = self.data.replace(b":", b" ").split()
        if len(words) == len(self.starts) and b"_" not in self.data:  # Python reads 1_0 as 10
            try:
                values = np.fromiter(map(float, words), np.float64, len(words))
            except ValueError:
                values = None
            if values is not None and np.isfinite(values).all():
                return values
        for token in range(len(self.starts)):
            if not _is_finite(self.text(token)):
                self.refuse([token], "expected a finite number")
        raise PolyfedError(f"{self.path}: holds control characters, expected plain text")

    def roles(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which tokens are labels, indices and values: a label begins a line, then index:value pairs follow."""
        first = np.diff(self.lines, prepend=0) > 0
        position = np.arange(len(first))
        position -= np.maximum.accumulate(np.where(first, position, 0))
        index, value = position % 2 == 1, (position % 2 == 0) & ~first
        before, after = self.bytes[self.starts - 1] == ord(":"), self.bytes[self.ends] == ord(":")
        wrong = (before != value) | (after != index)
        self.refuse(np.flatnonzero(wrong & first), "expected a label, as in '+1 3:1 7:0.5'")
        self.refuse(np.flatnonzero(wrong), "expected index:value, as in '+1 3:1 7:0.5'")
        apart = self.starts[value] != self.ends[index] + 1
        self.refuse(np.flatnonzero(value)[apart], "expected one ':' between an index and its value")
        colons = np.flatnonzero(self.bytes == ord(":"))
        for colon in colons[~np.isin(colons, self.ends[index])][:1]:
            line = int(np.searchsorted(np.flatnonzero(self.bytes == ord("\n")), colon))
            raise PolyfedError(f"{self.path}, line {line}: found a ':' without an index before it")
        return first, index, value

    def text(self, token: int) -> str:
        # The padding newline shifts every position by one.
        return self.data[self.starts[token] - 1 : self.ends[token] - 1].decode("utf-8", "replace")

    def refuse(self, wrong: Sequence[int] | np.ndarray, expected: str) -> None:
        """Refuse the first of these tokens, if there are any."""
        for token in wrong[:1]:
            raise PolyfedError(f"{self.path}, line {self.lines[token]}: found {self.text(token)!r}, {expected}")


def _is_finite(word: str) -> bool:
    try:
        return "_" not in word and bool(np.isfinite(float(word)))
    except ValueError:
        return False
