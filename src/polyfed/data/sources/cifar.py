"""CIFAR-10, binary version: records of one label byte and 3 x 32 x 32 pixel bytes, colour by colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.catalogue import CIFAR_BATCHES, CIFAR_FOLDER
from polyfed.data.sources.images import Images, check_image_options, share_out, whole
from polyfed.data.sources.label_names import CIFAR10
from polyfed.data.sources.published import published_file

RECORD = 1 + 3 * 32 * 32


def cifar10(
    partition: str = "dirichlet",
    clients: int = 100,
    seed: int = 0,
    validation: float = 0.1,
    test: float | str = "published",
    every: int = 1,
    **options: object,
) -> Federation:
    """CIFAR-10: 50,000 + 10,000 photographs of 32 x 32 x 3 bytes, 10 classes; `options` go to the partition.

    `test` is "published" (the test batch's images, shared out to match each client's own labels) or a share: then all
    60,000 images are shared out, and each client holds out that share of its own. `every` = n takes one image in n.
    """
    check_image_options(cifar10, partition, clients, options)
    files = [published_file(CIFAR_FOLDER, name) for name in CIFAR_BATCHES]
    x, y, training = parsed(_read, files)
    images = Images(x, y, int(training), 10, CIFAR10)
    return share_out(images, partition, clients, seed, validation, test, options, {"name": "cifar10"}, every)


def _read(files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, int]:
    pairs = []
    for file in files:
        size = file.stat().st_size
        if not size or size % RECORD:
            raise PolyfedError(f"{file}: has {size:,} bytes, expected a multiple of {RECORD}, the size of a record")
        records = np.fromfile(file, np.uint8).reshape(-1, RECORD)
        pairs.append((records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]))
    return *whole(pairs, files, 10), sum(len(y) for _, y in pairs[:-1])
