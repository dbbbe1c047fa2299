"""Hugging Face datasets, read by the package `datasets`: with a client column, or shared out by a partitioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.extras import extra_package
from polyfed.data.federation import Federation
from polyfed.data.formats.failures import reason
from polyfed.data.formats.partitioned import partitioned
from polyfed.data.option_checks import PathLike, existing_path, text
from polyfed.data.split import ReadOptions


def huggingface(
    name: str | None = None,
    path: PathLike | None = None,
    *,
    client: str | None = None,
    partitioner: Mapping[str, Any] | None = None,
    target: str,
    features: Sequence[str] | None = None,
    subset: str | None = None,
    split: str = "train",
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    classes: int | None = None,
) -> Federation:
    """A dataset by its `name` on the Hub (or in its cache), or by the `path` that `save_to_disk` wrote.

    Its column `client` says whose row it is, or a `partitioner` of flwr-datasets does: its class's name and arguments.
    """
    if (client is None) == (partitioner is None):
        raise PolyfedError("data source 'huggingface' needs either client (a column) or partitioner (a table)")
    if partitioner is not None and not isinstance(partitioner, Mapping):
        raise PolyfedError(f"data.partitioner must be a table with a name, found {partitioner!r}")
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
        dataset, owner = (dataset, str(client)) if partitioner is None else partitioned(dataset, partitioner)
        federation = Federation.from_huggingface(dataset, client=owner, target=target, features=features, **options)
    except PolyfedError as error:
        raise PolyfedError(f"{folder}: {error}") from None
    shared = {"client": client} if partitioner is None else {"partitioner": dict(partitioner)}
    columns = {**shared, "target": target, "features": features and list(features)}
    return replace(federation, source={"name": "huggingface", **named, "split": split, **columns, **options})


def _read(function: str, *arguments: str) -> Any:
    datasets = extra_package("datasets", "huggingface", "data source 'huggingface'")
    try:
        return getattr(datasets, function)(*arguments)
    except Exception as error:
        raise PolyfedError(f"{arguments[0]}: the package datasets cannot read it ({reason(error)})") from None
