"""A bank of pure local models: a file on disk that all methods, mixing weights, seeds and candidates read."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import weakref
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from polyfed.algorithms.shared.local_models import LocalTraining
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core import aligned as memory
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.core.trees import Tree
from polyfed.engine.checkpoint.tensors import named
from polyfed.engine.identity import plain_value, start_identity
from polyfed.problem.problem import Init, Problem

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
MODELS, UNFINISHED, ABOUT, CLIENTS = "models.safetensors", "models.unfinished", "bank.json", "clients.csv"
FAR = 0.1
"""A model is far from stationary where its gradient's norm is above this share of that at the start."""


def bank_identity(problem: Problem, training: LocalTraining, init: Init, seed: int, dtype: str) -> JsonObject:
    """What a bank is, in words: the rows that were trained on, the model, where training began, and how it went on."""
    parts = ("train",) if training.patience is None else ("train", "validation")
    known, key = problem.traced, ("rows", parts)
    if key not in known:
        known[key] = problem.federation.digest(parts)
    identity = {
        "format": FORMAT,
        "data": known[key],
        "clients": len(problem),
        "model": problem.model_fingerprint,
        "loss": problem.loss.name,
        "l2": problem.l2,
        "class_weight": None if problem.class_weight is None else problem.class_weight.tolist(),
        "init": start_identity(problem.model.start if init is None else init),
        "seed": seed,
        "dtype": dtype,
        **{name: plain_value(value) for name, value in vars(training).items() if name != "even"},
        **({"even": True} if training.even else {}),  # so that banks of before there was a choice are found
    }
    return json.loads(json.dumps(identity))


def bank_digest(identity: JsonObject) -> str:
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8).hexdigest()


class LocalModelBank:
    """x_i* of every client in a mapped file, and how they came about. `polyfed.local_models` makes or opens one."""

    def __init__(self, folder: Path, identity: JsonObject, training: LocalTraining, start: Tree) -> None:
        """Open the finished bank in `folder`; it must be of this identity."""
        self.folder, self.identity, self.training, self.start = folder, identity, training, start
        path = folder / MODELS
        try:
            about = json.loads((folder / ABOUT).read_text())
            refuse_other_bank(folder, about["identity"], identity)
            with safe_open(path, framework="np") as file:
                self.grad_norms, self.start_norms, self.epochs, self.seconds = (
                    file.get_tensor(name) for name in ("grad_norm", "start_norm", "epochs", "seconds")
                )
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
            self._map = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise PolyfedError(f"{folder}: this bank of local models cannot be read: {error}") from None
        self.clients: list[str] = about["clients"]
        self._leaves, self._offsets = self._mapped()

    def __len__(self) -> int:
        return len(self.grad_norms)

    @property
    def digest(self) -> str:
        return bank_digest(self.identity)

    @property
    def params(self) -> Tree:
        """Every client's model, a leading client axis on each array: mapped, so that only what is read is in memory."""
        return jax.tree.unflatten(jax.tree.structure(self.start), self._leaves)

    @cached_property
    def far(self) -> np.ndarray:
        """The places of the clients whose models are far from stationary.

        With a tolerance, those that did not reach it; else those whose gradient has not shrunk to a tenth.
        """
        tolerance = self.training.tolerance
        limit = np.maximum(FAR * self.start_norms, 0.0 if tolerance is None else tolerance)
        if tolerance is not None and self.training.patience is None:
            limit = np.full(len(self), tolerance)
        return np.flatnonzero(self.grad_norms > limit)

    @property
    def report(self) -> pd.DataFrame:
        """A row per client: gradient norms at the start and at the end, epochs and seconds."""
        import pandas as pd

        return pd.DataFrame(
            {
                "client": self.clients,
                "start_norm": self.start_norms,
                "grad_norm": self.grad_norms,
                "epochs": self.epochs,
                "seconds": self.seconds,
            }
        )

    def rows(self, clients: np.ndarray) -> tuple[Tree, np.ndarray]:
        """A copy of these clients' models, and their gradient norms.

        They are read from the file, not through the map, whose pages would come one by one and stay in memory.
        """
        taken = [self._read(leaf, offset, clients) for leaf, offset in zip(self._leaves, self._offsets, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(self.start), taken), self.grad_norms[clients]

    def _read(self, leaf: np.ndarray, offset: int, clients: np.ndarray) -> np.ndarray:
        if not hasattr(os, "preadv"):
            return memory.take(leaf, clients)
        chosen = memory.empty((len(clients), *leaf.shape[1:]), leaf.dtype)
        flat, row = chosen.reshape(-1).view(np.uint8), leaf[:1].nbytes
        breaks = np.flatnonzero(np.diff(clients) != 1) + 1
        for first, last in pairwise([0, *breaks.tolist(), len(clients)]):
            at, end = first * row, last * row
            there = offset + int(clients[first]) * row - at if last > first else 0
            while at < end:
                got = os.preadv(self._file, [flat[at:end].data], there + at)
                if not got:
                    raise PolyfedError(f"{self.folder / MODELS}: the file of this bank of local models has been cut")
                at += got
        return chosen

    def refuse_other(self, problem: Problem, training: LocalTraining, init: Init, dtype: str) -> None:
        """Refuse to serve another problem, training or start, naming the first thing that differs."""
        given = self.identity["init"] if init is None else init
        expected = bank_identity(problem, training, given, self.identity["seed"], dtype)
        refuse_other_bank(self.folder, self.identity, expected)

    def filled_in(self, method: MixtureMethod) -> MixtureMethod:
        """The method with the settings of this bank, where it has none of its own."""
        return method.trained_as(self.training) if method.local_training == LocalTraining() else method

    def _mapped(self) -> tuple[list[np.ndarray], list[int]]:
        """The arrays of all models, and where they begin in the file."""
        size = int.from_bytes(self._map[:8], "little")
        header = json.loads(self._map[8 : 8 + size])
        leaves, offsets = [], []
        for name, leaf in named({"params": self.start}).items():
            first, last = header[name]["data_offsets"]
            count = (last - first) // leaf.dtype.itemsize
            flat = np.frombuffer(self._map, leaf.dtype, count, 8 + size + first)
            leaves.append(flat.reshape(header[name]["shape"]))
            offsets.append(8 + size + first)
        return leaves, offsets


def refuse_other_bank(folder: Path, stored: JsonObject, expected: JsonObject) -> None:
    for key in sorted(set(stored) | set(expected)):
        if stored.get(key) != expected.get(key):
            raise PolyfedError(
                f"{folder}: this bank of local models is of something else: {key} was {json.dumps(stored.get(key))}, "
                f"now it is {json.dumps(expected.get(key))}"
            )
