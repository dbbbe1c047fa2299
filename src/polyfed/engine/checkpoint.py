"""Checkpoints: safetensors and JSON, never pickle; a checkpoint is either there in full or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from polyfed.errors import PolyfedError

FORMAT = 1
NAME = re.compile(r"round-(\d{9})")


def save(folder: Path, round: int, state: Any, meta: dict[str, Any]) -> Path:
    """Write `folder/round-N`, then drop older ones. The new one appears by a rename, after all of it is on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"round-{round:09d}"
    if target.exists():
        return target
    work = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        save_tree(work / "state.safetensors", state)
        (work / "meta.json").write_text(json.dumps({"format": FORMAT, **meta}, indent=1))
        for file in (*work.iterdir(), work):
            _sync(file)
        work.rename(target)
        _sync(folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    for old in [
        path for path in folder.iterdir() if path != target and (NAME.fullmatch(path.name) or _left_over(path))
    ]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if NAME.fullmatch(path.name) or _left_over(path):
            shutil.rmtree(path)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint in a folder; None where there is none."""
    found = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []
    return found[-1] if found else None


def load(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """The state, in the structure of `like`, and the meta data."""
    try:
        meta = json.loads((path / "meta.json").read_text())
        if meta.get("format") != FORMAT:
            raise PolyfedError(f"{path}: checkpoint format {meta.get('format')!r}, this version reads {FORMAT}")
        return load_tree(path / "state.safetensors", like), meta
    except (OSError, json.JSONDecodeError, SafetensorError) as error:
        raise PolyfedError(f"{path}: this checkpoint cannot be read: {error}") from None


def refuse_other(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse a checkpoint of another run, naming the first thing that differs."""
    for key in sorted(set(found) | set(expected)):
        if found.get(key) != expected.get(key):
            raise PolyfedError(
                f"{path}: this checkpoint is of another run: {key} was {_brief(found.get(key))}, now it is "
                f"{_brief(expected.get(key))}"
            )


def kept_rows(rows: list[dict[str, Any]], eval_every: int, rounds: int) -> list[dict[str, Any]]:
    """A history to go on from: without the last row of a shorter run, which a longer one would not have measured."""
    return [row for row in rows if row["round"] % eval_every == 0 or row["round"] == rounds]


def save_tree(path: Path, tree: Any) -> None:
    """A pytree of arrays as one safetensors file, each array under its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    save_file({_name(where): np.asarray(leaf, order="C") for where, leaf in leaves}, path)


def load_tree(path: Path, like: Any) -> Any:
    """Read back what `save_tree` wrote, in the structure of `like`; shapes and types must be the same."""
    arrays = load_file(path)
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    if {_name(where) for where, _ in leaves} != set(arrays):
        raise PolyfedError(f"{path}: the arrays in this file are not those of this run")
    for where, leaf in leaves:
        array = arrays[_name(where)]
        if array.shape != np.shape(leaf) or array.dtype != np.asarray(leaf).dtype:
            raise PolyfedError(
                f"{path}: {_name(where)} is {array.dtype}{list(array.shape)}, "
                f"this run has {np.asarray(leaf).dtype}{list(np.shape(leaf))}"
            )
    return jax.tree.unflatten(structure, [arrays[_name(where)] for where, _ in leaves])


def _name(where: Any) -> str:
    return jax.tree_util.keystr(where, simple=True, separator="/") or "value"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _left_over(path: Path) -> bool:
    return path.name.startswith(".writing-")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "..."
