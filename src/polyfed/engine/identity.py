"""What a run is, in words: a checkpoint or a journal goes on only with the same run."""

from __future__ import annotations

import hashlib
from dataclasses import is_dataclass
from typing import Any

import jax
import numpy as np

from polyfed.algorithms.contract import Algorithm
from polyfed.core.files import JsonObject
from polyfed.problem.problem import Init, Problem

LATER = {"even": False}
"""Hyper-parameters that came after runs were kept, and what these did: so much is not told of a method."""


def told(method: Algorithm) -> JsonObject:
    """A method's hyper-parameters, so that what an earlier version began goes on where nothing is different."""
    return {name: value for name, value in vars(method).items() if name not in LATER or value is not LATER[name]}


def run_identity(
    problem: Problem,
    algorithm: Algorithm,
    participation: object,
    seed: int,
    init: Init,
    dtype: str,
    compute: str | None = None,
) -> JsonObject:
    """What a run is, in words: two runs with the same identity give the same numbers."""
    hyper = {name: plain_value(value) for name, value in told(algorithm).items()}
    return {
        "algorithm": algorithm.name,
        **{f"algorithm.{name}": value for name, value in hyper.items()},
        "data": problem.fingerprint,
        "model": problem.model_fingerprint,
        "loss": problem.loss.name,
        "l2": problem.l2,
        **({} if problem.class_weight is None else {"class_weight": problem.class_weight.tolist()}),
        "participation": plain_value(participation),
        "seed": seed,
        "init": start_identity(init),
        "dtype": dtype if compute in (None, dtype) else f"{dtype}, computed in {compute}",
    }


def start_identity(init: Init) -> str | None:
    """Where a run starts: the word, or a digest of the parameters."""
    return init if init is None or isinstance(init, str) else _digest(*jax.tree.leaves(init))


def plain_value(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{name: plain_value(inner) for name, inner in vars(value).items()}}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else repr(value).split(" at 0x")[0]


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
