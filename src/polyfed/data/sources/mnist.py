"""MNIST and its kin from their IDX files: by any partition, or MNIST by the person who wrote each digit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.formats.idx import read_idx
from polyfed.data.option_checks import choice, fractions, integer
from polyfed.data.schemes import by_column
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.images import Images, check_image_options, share_out, whole
from polyfed.data.sources.label_names import CLOTHES, DIGITS, EMNIST
from polyfed.data.sources.published import published_file
from polyfed.data.sources.rows import federation_of_rows, natural_clients, split_at_random


def mnist(
    partition: str = "dirichlet",
    clients: int = 100,
    seed: int = 0,
    validation: float = 0.1,
    test: float | str = "published",
    every: int = 1,
    **options: object,
) -> Federation:
    """MNIST: 60,000 + 10,000 digits of 28 x 28 bytes, 10 classes; `options` go to the partition.

    `test` is "published" (the test file's images, shared out to match each client's own labels) or a share: then all
    70,000 images are shared out, and each client holds out that share of its own. `every` = n takes one image in n.
    """
    check_image_options(mnist, partition, clients, options)
    images = read_images(standard_files("mnist"), DIGITS)
    return share_out(images, partition, clients, seed, validation, test, options, {"name": "mnist"}, every)


def fashion_mnist(
    partition: str = "dirichlet",
    clients: int = 100,
    seed: int = 0,
    validation: float = 0.1,
    test: float | str = "published",
    every: int = 1,
    **options: object,
) -> Federation:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 28 x 28 bytes, 10 classes; as `mnist` otherwise."""
    check_image_options(fashion_mnist, partition, clients, options)
    images = read_images(standard_files("fashion-mnist"), CLOTHES)
    return share_out(images, partition, clients, seed, validation, test, options, {"name": "fashion_mnist"}, every)


def emnist(
    version: str = "balanced",
    partition: str = "dirichlet",
    clients: int = 100,
    seed: int = 0,
    validation: float = 0.1,
    test: float | str = "published",
    every: int = 1,
    **options: object,
) -> Federation:
    """EMNIST: handwritten digits and letters of 28 x 28 bytes, 10 to 62 classes by `version`; as `mnist` otherwise."""
    choice("version", version, EMNIST)
    check_image_options(emnist, partition, clients, options)
    stem = f"emnist-{version}"
    names = [f"{stem}-{part}-{kind}-ubyte.gz" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")]
    files = [published_file("emnist", name) for name in names]
    first = 1 if version == "letters" else 0
    images = read_images(files, EMNIST[version], first, turned=True)
    source: dict[str, object] = {"name": "emnist", "version": version}
    return share_out(images, partition, clients, seed, validation, test, options, source, every)


def mnist_by_writer(
    clients: int | None = None,
    min_rows: int = 2,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Federation:
    """MNIST's 60,000 training images by their 539 writers (QMNIST's writer ids), each with splits of its own.

    The 10,000 test images are by other writers, so nobody's model can be measured on them; they are not used.
    `clients` writers are drawn from those with at least `min_rows` images. The column `series` is NIST's number of
    the batch that a writer is in: 0 are employees, 4 students.
    """
    fractions(validation, test)
    integer("seed", seed)
    images = read_images(standard_files("mnist"), DIGITS)
    file = published_file("mnist", "qmnist-train-labels-idx2-int.gz")
    (labels,) = parsed(_writers, [file])
    if len(labels) != images.training:
        raise PolyfedError(f"{file}: has {len(labels):,} rows for {images.training:,} images, expected equal numbers")
    for row in np.flatnonzero(labels[:, 0] != images.y[: images.training])[:1]:
        raise PolyfedError(f"{file}: row {row} (counted from 0) is a {labels[row, 0]}, but MNIST's is {images.y[row]}")
    groups = by_column(labels[:, 2])
    sizes = {name: len(groups[name]) for name in sorted(groups, key=int)}
    chosen = natural_clients(sizes, clients, min_rows, seed, where=str(file), what="writers")
    rows, names = [groups[name] for name in chosen], [f"writer-{int(name):04d}" for name in chosen]
    given = {"clients": clients, "min_rows": min_rows, "validation": validation, "test": test, "seed": seed}
    return federation_of_rows(
        images.x,
        images.y,
        names,
        split_at_random(names, rows, images.y, validation, test, seed),
        classes=10,
        label_names=DIGITS,
        columns={"series": np.asarray([labels[own[0], 1] for own in rows], np.int32)},
        source={"name": "mnist_by_writer", **given},
    )


def standard_files(folder: str) -> list[Path]:
    """MNIST's four files: training images and labels, test images and labels."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return [published_file(folder, f"{name}-ubyte.gz") for name in names]


def read_images(files: Sequence[Path], labels: tuple[str, ...], first: int = 0, turned: bool = False) -> Images:
    """Four IDX files as images; labels count from `first`; `turned` images have their rows and columns exchanged."""
    x, y, training = parsed(_read, files, len(labels), first, turned)
    return Images(x, y, int(training), len(labels), labels)


def _read(files: Sequence[Path], classes: int, first: int, turned: bool) -> tuple[np.ndarray, np.ndarray, int]:
    pairs = []
    for image_file, label_file in (files[:2], files[2:]):
        x, y = read_idx(image_file, axes=3, kind="u1"), read_idx(label_file, axes=1, kind="u1")
        if (y < first).any():
            raise PolyfedError(f"{label_file}: has a label {y.min()}, expected labels from {first}")
        pairs.append((x.transpose(0, 2, 1) if turned else x, y - np.uint8(first)))
    return *whole(pairs, [files[1], files[3]], classes), len(pairs[0][1])


def _writers(files: Sequence[Path]) -> tuple[np.ndarray]:
    labels = read_idx(files[0], axes=2, kind="i4")
    if labels.shape[1] != 8:
        raise PolyfedError(f"{files[0]}: has {labels.shape[1]} columns, expected the 8 of QMNIST's extended labels")
    return (labels.astype(np.int32),)
