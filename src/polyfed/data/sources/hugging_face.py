"""Hugging Face datasets with a client column; the package `datasets` is needed to read one, not to be given one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.federation import Federation, PathLike
from polyfed.data.formats.npz import by_client
from polyfed.data.options import existing_path, text


def huggingface(
    name: str | None = None,
    path: PathLike | None = None,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    subset: str | None = None,
    split: str = "train",
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    classes: int | None = None,
) -> Federation:
    """A dataset by its `name` on the Hub (or in its cache), or by the `path` that `save_to_disk` wrote."""
    if (name is None) == (path is None):
        raise PolyfedError("data source 'huggingface' needs either name (of a dataset) or path (of a saved one)")
    text("split", split)
    if path is not None:
        folder = str(existing_path("path", path))
        dataset = _read("load_from_disk", folder)
    else:
        folder = text("name", name)
        dataset = _read("load_dataset", folder, *([] if subset is None else [subset]))
    if isinstance(dataset, Mapping):
        if split not in dataset:
            raise PolyfedError(f"{folder}: there is no split {split!r}{suggestion(split, map(str, dataset))}")
        dataset = dataset[split]
    given = {"features": features and list(features), "validation": validation, "test": test, "seed": seed}
    given["classes"] = classes
    named = {"path": str(path)} if path is not None else {"dataset": name, **({"subset": subset} if subset else {})}
    try:
        federation = from_huggingface(dataset, client=client, target=target, **given)
    except PolyfedError as error:
        raise PolyfedError(f"{folder}: {error}") from None
    source = {"name": "huggingface", **named, "split": split, "client": client, "target": target, **given}
    return replace(federation, source=source)


def from_huggingface(
    dataset: Any, *, client: str, target: str, features: Sequence[str] | None = None, **options: Any
) -> Federation:
    """See `Federation.from_huggingface`."""
    if isinstance(dataset, Mapping) or not hasattr(dataset, "column_names"):
        found = f"splits {', '.join(map(str, dataset))}" if isinstance(dataset, Mapping) else type(dataset).__name__
        raise PolyfedError(f"expected one split of a Hugging Face dataset, such as dataset['train'], found {found}")
    present = list(dataset.column_names)
    if features is not None and not isinstance(features, list | tuple):
        raise PolyfedError(f"features must be a list of column names, found {features!r}")
    chosen = [c for c in present if c not in (client, target)] if features is None else list(features)
    for role, column in (("client", client), ("target", target), *(("feature", c) for c in chosen)):
        if column not in present:
            raise PolyfedError(f"there is no {role} column {column!r}{suggestion(str(column), present)}")
    if not chosen:
        raise PolyfedError(f"there are no feature columns beside {client!r} and {target!r}")
    rows = dataset.with_format("numpy") if hasattr(dataset, "with_format") else dataset
    parts = [_features(dataset, rows, column) for column in chosen]
    if len(parts) > 1:
        parts = [np.concatenate([p.reshape(len(p), -1).astype(np.float64) for p in parts], axis=1)]
    label_names = getattr((getattr(dataset, "features", None) or {}).get(target), "names", None)
    if label_names and options.get("classes") is None:
        options["classes"] = len(label_names)
    source = {"name": "huggingface", "client": client, "target": target, **options}
    federation = by_client(_column(rows, client), parts[0], _column(rows, target), source=source, **options)
    flat = len(chosen) > 1 and parts[0].shape[1] == len(chosen)
    return replace(
        federation,
        label_names=tuple(map(str, label_names)) if label_names else federation.label_names,
        feature_names=tuple(chosen) if flat else None,
    )


def _read(function: str, *arguments: str) -> Any:
    try:
        import datasets  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise PolyfedError(
            "data source 'huggingface' needs the package datasets, which is not installed: pip install "
            "'polyfed[huggingface]'"
        ) from None
    try:
        return getattr(datasets, function)(*arguments)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise PolyfedError(f"{arguments[0]}: the package datasets cannot read it ({reason})") from None


def _column(rows: Any, name: str) -> np.ndarray:
    """A column as an array, whatever the package makes of it: an array, a list, or a lazy column."""
    values = rows[name]
    if not isinstance(values, np.ndarray | list):
        values = values[:]  # a lazy column gives all its rows at once much faster than one by one
    if not isinstance(values, np.ndarray):
        values = [np.asarray(value) for value in values]  # pictures too
        if len({value.shape for value in values}) > 1:
            raise PolyfedError(f"column {name!r} has entries of different shapes, expected one shape")
        values = np.stack(values) if values else np.zeros(0)
    if values.dtype.kind == "O":
        flat = values.ravel().tolist()
        if not all(isinstance(value, str) for value in flat):
            raise PolyfedError(f"column {name!r} has entries of different shapes or types, expected one of each")
        values = values.astype(np.str_)
    return values


def _features(dataset: Any, rows: Any, name: str) -> np.ndarray:
    """A feature column: bytes as they are declared, one number per row as floating point, all else as it comes."""
    values = _column(rows, name)
    if values.dtype.kind not in "biuf":
        raise PolyfedError(f"feature column {name!r} has type {values.dtype}, expected numbers or pictures; encode it")
    if values.ndim == 1:
        return values.astype(np.float64)
    kind: Any = (getattr(dataset, "features", None) or {}).get(name)
    while hasattr(kind, "feature"):
        kind = kind.feature  # what a list is of
    # The package's arrays are int64 whatever whole numbers they hold.
    return values.astype(np.uint8) if getattr(kind, "dtype", None) == "uint8" else values
