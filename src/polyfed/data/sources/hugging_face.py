"""Hugging Face datasets with a client column, read by the package `datasets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.extras import extra_package
from polyfed.data.federation import Federation
from polyfed.data.formats.failures import reason
from polyfed.data.option_checks import PathLike, existing_path, text
from polyfed.data.split import ReadOptions


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
    options: ReadOptions = {"validation": validation, "test": test, "seed": seed, "classes": classes}
    named = {"path": str(path)} if path is not None else {"dataset": name, **({"subset": subset} if subset else {})}
    try:
        federation = Federation.from_huggingface(dataset, client=client, target=target, features=features, **options)
    except PolyfedError as error:
        raise PolyfedError(f"{folder}: {error}") from None
    columns = {"client": client, "target": target, "features": features and list(features)}
    return replace(federation, source={"name": "huggingface", **named, "split": split, **columns, **options})


def _read(function: str, *arguments: str) -> Any:
    datasets = extra_package("datasets", "huggingface", "data source 'huggingface'")
    try:
        return getattr(datasets, function)(*arguments)
    except Exception as error:
        raise PolyfedError(f"{arguments[0]}: the package datasets cannot read it ({reason(error)})") from None
