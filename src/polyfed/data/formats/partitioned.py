"""A Hugging Face dataset without a client column, shared out by one of `flwr-datasets`' partitioners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.extras import extra_package
from polyfed.data.formats.failures import reason

CLIENT = "client"
"""The column that is added, where the dataset has none of this name."""


def partitioned(dataset: Any, partitioner: Mapping[str, Any]) -> tuple[Any, str]:
    """The dataset with a column that says whose row it is, and this column's name.

    `partitioner` has the class's name and its arguments: `{name = "DirichletPartitioner", num_partitions = 10, ...}`.
    Rows that it gives to nobody are left out.
    """
    known = extra_package("flwr_datasets.partitioner", "huggingface", "data.partitioner")
    options = dict(partitioner)
    name = options.pop("name", None)
    names = [each for each in known.__all__ if each.endswith("Partitioner") and each != "Partitioner"]
    if name not in names:
        raise PolyfedError(f"data.partitioner: unknown name {name!r}{suggestion(str(name), names)}")
    column = CLIENT
    while column in dataset.column_names:
        column += "_"
    try:
        maker = getattr(known, name)(**options)
        maker.dataset = dataset.add_column(column, np.arange(len(dataset)).tolist())
        parts = [maker.load_partition(number)[column] for number in range(maker.num_partitions)]
    except PolyfedError:
        raise
    except Exception as error:
        raise PolyfedError(f"data.partitioner: {name} refuses ({reason(error)})") from None
    owners = np.full(len(dataset), -1)
    for number, rows in enumerate(parts):
        owners[np.asarray(rows, int)] = number
    kept = np.flatnonzero(owners >= 0)
    width = len(str(len(parts) - 1))
    labels = [f"client-{owners[row]:0{width}d}" for row in kept]
    return dataset.select(kept.tolist()).add_column(column, labels), column
