"""Published image datasets, shared out over clients by any partition; pixels stay bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from polyfed.core.aligned import empty
from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import check_options, integer, option_names
from polyfed.data.schemes import assign, scheme_options
from polyfed.data.seeds import stream
from polyfed.data.sources.digits import DEFAULTS
from polyfed.data.sources.rows import PUBLISHED, Rows, federation_of_rows, held_out, split_at_random


@dataclass(frozen=True)
class Images:
    """All images of a dataset, those of the training files first."""

    x: np.ndarray  # (rows, height, width) or (rows, height, width, colours), uint8
    y: np.ndarray  # (rows,), int32
    training: int
    classes: int
    label_names: tuple[str, ...] | None = None


def check_image_options(
    source: Callable[..., Federation], partition: str, clients: object, options: Mapping[str, object]
) -> None:
    """Refuse unknown and missing options of the source and its partition, before any file is read."""
    names, required = scheme_options(partition)
    given = {**DEFAULTS.get(partition, {}), **options}
    check_options(f"{source.__name__} with partition {partition!r}", given, option_names(source)[0] | names, required)
    integer("clients", clients, 1)


def share_out(
    images: Images,
    partition: str,
    clients: int,
    seed: int,
    validation: float,
    test: float | str,
    options: Mapping[str, object],
    source: Mapping[str, object],
    every: int = 1,
) -> Federation:
    """Training and test rows for every client, both with its own mixture of labels.

    With test = "published" the training files are partitioned, and every client gets rows of the test files in
    proportion to its own labels; no test image is ever trained on. With a share, all images are partitioned, and each
    client holds out that share of its own.
    """
    integer("seed", seed)
    images = thinned(images, integer("every", every, 1))
    options = {**DEFAULTS.get(partition, {}), **options}
    validation, share = held_out(validation, test)
    count = images.training if share is None else len(images.y)
    names, rows = assign(images.y[:count], partition, clients, seed, options)
    parts = split_at_random(names, rows, images.y, validation, share or 0.0, seed)
    if share is None:
        parts["test"] = matching_test_rows(images, rows, seed)
    described: dict[str, object] = {**source, "partition": partition, "clients": clients, "seed": seed}
    described |= {"validation": validation, "test": test}
    if every > 1:
        described["every"] = every
    return federation_of_rows(
        images.x,
        images.y,
        names,
        parts,
        classes=images.classes,
        label_names=images.label_names,
        source={**described, **{key: value for key, value in options.items() if key != "values"}},
    )


def thinned(images: Images, every: int) -> Images:
    """One image in `every`, in the order of the files."""
    if every == 1:
        return images
    return replace(images, x=images.x[::every], y=images.y[::every], training=-(-images.training // every))


def matching_test_rows(images: Images, rows: Rows, seed: int) -> Rows:
    """Rows of the test files for every client, in proportion to the labels of its training rows; each is used once.

    A client with a share q of a class's training rows gets floor(q n) or one more of the class's n test rows, on
    average q n. A client that would get none gets one row of its commonest class from the client that has most of them.
    """
    counts = np.stack([np.bincount(images.y[own], minlength=images.classes) for own in rows])
    y = images.y[images.training :]
    wanted = np.zeros_like(counts)
    random = stream(seed, "test rows")
    for c in range(images.classes):
        total = counts[:, c].sum()
        if total:
            wanted[:, c] = _systematic(counts[:, c] / total, int((y == c).sum()), random)
    for client in np.flatnonzero(wanted.sum(axis=1) == 0):
        _give_one(wanted, counts[client], int(client))
    owned: list[list[np.ndarray]] = [[] for _ in rows]
    for c in range(images.classes):
        drawn = random.permutation(np.flatnonzero(y == c))
        for own, part in zip(owned, np.split(drawn, np.cumsum(wanted[:, c]))[:-1], strict=True):
            own.append(part)
    return [np.sort(np.concatenate(own)) + images.training for own in owned]


def _systematic(shares: np.ndarray, n: int, random: np.random.Generator) -> np.ndarray:
    """Whole numbers that add up to n, each the floor or the ceiling of share * n, and on average equal to it."""
    order = random.permutation(len(shares))
    bounds = np.floor(np.cumsum(shares[order]) * n + random.uniform()).astype(np.int64).clip(0, n)
    bounds[-1] = n
    counts = np.zeros(len(shares), np.int64)
    counts[order] = np.diff(bounds, prepend=0)
    return counts


def _give_one(wanted: np.ndarray, own: np.ndarray, client: int) -> None:
    for c in np.argsort(-own, kind="stable")[: np.count_nonzero(own)]:
        donor = int(np.argmax(np.where(wanted.sum(axis=1) > 1, wanted[:, c], 0)))
        if wanted[donor, c] and wanted[donor].sum() > 1:
            wanted[donor, c] -= 1
            wanted[client, c] += 1
            return
    raise PolyfedError(
        f"the test files have too few rows for {len(wanted)} clients; take fewer clients, or a share of each client's "
        f"own rows with test = 0.2 instead of {PUBLISHED!r}"
    )


def whole(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], files: Sequence[Path], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """(images, labels) pairs one after another in aligned memory; an error names the one of `files` with the labels."""
    for (x, y), file in zip(pairs, files, strict=True):
        if len(x) != len(y):
            raise PolyfedError(f"{file}: has {len(y):,} labels for {len(x):,} images, expected equal numbers")
        if not len(y):
            raise PolyfedError(f"{file}: has no labels")
        if x.shape[1:] != pairs[0][0].shape[1:]:
            raise PolyfedError(f"{file}: images of shape {x.shape[1:]}, expected {pairs[0][0].shape[1:]} as before")
        for row in np.flatnonzero(y >= classes)[:1]:
            raise PolyfedError(f"{file}: label {y[row]} of image {row} (counted from 0), expected 0..{classes - 1}")
    total = sum(len(y) for _, y in pairs)
    all_x, all_y = empty((total, *pairs[0][0].shape[1:]), np.uint8), empty((total,), np.int32)
    start = 0
    for x, y in pairs:
        all_x[start : start + len(y)], all_y[start : start + len(y)] = x, y
        start += len(y)
    return all_x, all_y
