"""A federation from a split of a Hugging Face dataset that is already loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.arrays import from_owned_rows
from polyfed.data.split import ReadOptions

if TYPE_CHECKING:
    from polyfed.data.federation import Federation


class HuggingFaceSplit(Protocol):
    """What is used of a `datasets.Dataset`; where it has them, also `features` and `with_format`."""

    @property
    def column_names(self) -> Sequence[str]: ...

    def __getitem__(self, column: str, /) -> Any: ...


def from_huggingface(
    cls: type[Federation],
    dataset: HuggingFaceSplit,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    **options: Unpack[ReadOptions],
) -> Federation:
    """See `Federation.from_huggingface`."""
    if isinstance(dataset, Mapping) or not hasattr(dataset, "column_names"):
        kind = f"splits {', '.join(map(str, dataset))}" if isinstance(dataset, Mapping) else type(dataset).__name__
        raise PolyfedError(f"expected one split of a Hugging Face dataset, such as dataset['train'], found {kind}")
    present = list(dataset.column_names)
    if features is not None and not isinstance(features, list | tuple):
        raise PolyfedError(f"features must be a list of column names, found {features!r}")
    chosen = [c for c in present if c not in (client, target)] if features is None else list(features)
    for role, column in (("client", client), ("target", target), *(("feature", c) for c in chosen)):
        if column not in present:
            raise PolyfedError(f"there is no {role} column {column!r}{suggestion(str(column), present)}")
    if not chosen:
        raise PolyfedError(f"there are no feature columns beside {client!r} and {target!r}")
    with_format = getattr(dataset, "with_format", None)
    rows: HuggingFaceSplit = dataset if with_format is None else with_format("numpy")
    parts = [_features(dataset, rows, column) for column in chosen]
    if len(parts) > 1:
        parts = [np.concatenate([p.reshape(len(p), -1).astype(np.float64) for p in parts], axis=1)]
    label_names = getattr(_declared(dataset, target), "names", None)
    if label_names and options["classes"] is None:
        options["classes"] = len(label_names)
    source: dict[str, object] = {"name": "huggingface", "client": client, "target": target, **options}
    federation = from_owned_rows(cls, _column(rows, client), parts[0], _column(rows, target), source=source, **options)
    flat = len(chosen) > 1 and parts[0].shape[1] == len(chosen)
    return replace(
        federation,
        label_names=tuple(map(str, label_names)) if label_names else federation.label_names,
        feature_names=tuple(chosen) if flat else None,
    )


def _declared(dataset: HuggingFaceSplit, column: str) -> object:
    """What the dataset declares about a column, if anything."""
    return (getattr(dataset, "features", None) or {}).get(column)


def _column(rows: HuggingFaceSplit, name: str) -> np.ndarray:
    """A column as an array, whatever the package makes of it: an array, a list, or a lazy column."""
    values = rows[name]
    if not isinstance(values, np.ndarray | list):
        values = values[:]  # a lazy column gives all its rows at once much faster than one by one
    if not isinstance(values, np.ndarray):
        entries = [np.asarray(value) for value in values]  # pictures too
        if len({entry.shape for entry in entries}) > 1:
            raise PolyfedError(f"column {name!r} has entries of different shapes, expected one shape")
        values = np.stack(entries) if entries else np.zeros(0)
    if values.dtype.kind == "O":
        flat = values.ravel().tolist()
        if not all(isinstance(value, str) for value in flat):
            raise PolyfedError(f"column {name!r} has entries of different shapes or types, expected one of each")
        values = values.astype(np.str_)
    return values


def _features(dataset: HuggingFaceSplit, rows: HuggingFaceSplit, name: str) -> np.ndarray:
    """A feature column: bytes as they are declared, one number per row as floating point, all else as it comes."""
    values = _column(rows, name)
    if values.dtype.kind not in "biuf":
        raise PolyfedError(f"feature column {name!r} has type {values.dtype}, expected numbers or pictures; encode it")
    if values.ndim == 1:
        return values.astype(np.float64)
    kind = _declared(dataset, name)
    while hasattr(kind, "feature"):
        kind = getattr(kind, "feature", None)  # what a list is of
    # The package's arrays are int64 whatever whole numbers they hold.
    return values.astype(np.uint8) if getattr(kind, "dtype", None) == "uint8" else values
