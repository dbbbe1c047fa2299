"""The published datasets, where they lie beside the repository, and small files in the same formats."""

from __future__ import annotations

import functools
import gzip
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polyfed.data.sources import cache

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> Callable[[str], Path]:
    """The data folder with a real dataset in it: published("mnist")."""
    if not (SHARED / "unpack").is_file():
        pytest.skip("the published datasets are not beside the repository (no ../shared/data/unpack)")
    folder = tmp_path_factory.mktemp("published")

    @functools.cache
    def unpacked(name: str) -> Path:
        subprocess.run([sys.executable, str(SHARED / "unpack"), str(folder), name], check=True)
        return folder

    return unpacked


@pytest.fixture(autouse=True)
def _empty_cache():
    cache.forget()


def idx_bytes(array: np.ndarray, kind: int = 0x08) -> bytes:
    """An array in the IDX format, written from its description: 00 00 type axes, big-endian lengths, the numbers."""
    dtype = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}[kind]
    head = bytes([0, 0, kind, array.ndim]) + b"".join(struct.pack(">I", n) for n in array.shape)
    return head + array.astype(dtype).tobytes()


def small_mnist(folder: Path, train: np.ndarray, test: np.ndarray, names: tuple[str, str] = ("train", "t10k")) -> None:
    """MNIST's four files with these labels; the pixels of image k spell k, so that images can be told apart."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for name, labels in zip(names, (train, test), strict=True):
        number = np.arange(start, start + len(labels))
        images = np.zeros((len(labels), 28, 28), np.uint8)
        images[:, 0, 0], images[:, 0, 1] = number // 256, number % 256
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images), 1))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(labels), 1))
        start += len(labels)


def numbers(x: np.ndarray) -> np.ndarray:
    """Which images of `small_mnist` these are."""
    return x[:, 0, 0].astype(int) * 256 + x[:, 0, 1]
