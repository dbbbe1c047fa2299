"""Checkpoints: safetensors and JSON, never pickle; a checkpoint is either there in full or not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, name_file, owner_only
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.checkpoint.tensors import blank_rows, load_rows, load_tree, save_rows, save_tree

FORMAT = 3
NAME = re.compile(r"round-(\d{9})")
DIGESTS = "digests.json"

log = logging.getLogger("polyfed")


SHARED = ("server", "clients", "excluded", "shares")


@dataclass(frozen=True)
class Snapshot:
    """A federation between two rounds, apart from counters."""

    server: Tree
    clients: np.ndarray
    """those that were ever stored: whose states differ from the start"""
    excluded: np.ndarray
    """for each of them: how often its update was not finite"""
    shares: np.ndarray
    """for each of them: its share of the server's averages, summed over the rounds"""
    rows: Iterable[Tree]
    """their states in the same order, in blocks: a leading client axis on each array"""
    norms: tuple[float, ...] = ()
    """the median norms of past rounds' uploads, where the next round is bounded by them"""


def name_of(round: int) -> str:
    return f"round-{round:09d}"


def round_of(name: str) -> int:
    return int(name.removeprefix("round-"))


def save(folder: Path, round: int, state: Snapshot, meta: JsonObject, keep: int = 2) -> Path:
    """Write `folder/round-N`, and drop all but the newest `keep`. It appears by a rename, after it is on the disk.

    Process 0 writes it; the others only send it their clients' rows, block by block.
    """
    target = folder / name_of(round)
    if not hosts.is_first():
        if not hosts.agreed(partial(_whole, target)):
            deque(state.rows, maxlen=0)
        return target
    owner_only(folder)
    if hosts.agreed(partial(_whole, target)):
        return target
    if target.exists():
        shutil.rmtree(target)
    work = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        shared = {name: getattr(state, name) for name in SHARED}
        save_tree(work / "state.safetensors", shared)
        save_rows(work / "clients.safetensors", state.rows, len(state.clients))
        (work / "meta.json").write_text(json.dumps(_meta(state, meta), indent=1))
        digests = {file.name: _digest(file) for file in sorted(work.iterdir())}
        (work / DIGESTS).write_text(json.dumps(digests, indent=1))
        for file in (*work.iterdir(), work):
            _sync(file)
        work.rename(target)
        _sync(folder)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        name_file(error, target)
        raise
    kept = [target.name, *[name for name in names(folder) if name < target.name][: keep - 1]]
    for path in list(folder.iterdir()):
        if (NAME.fullmatch(path.name) and path.name not in kept) or _left_over(path):
            shutil.rmtree(path, ignore_errors=True)
    return target


def clear(folder: Path, after: str = "") -> None:
    """Remove the checkpoints of an earlier run; `after`: only those that are newer than this one."""
    if not hosts.is_first():
        return
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if (NAME.fullmatch(path.name) and path.name > after) or _left_over(path):
            shutil.rmtree(path)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint in a folder of process 0 that is not damaged; None where there is none at all.

    `folder` may also be a checkpoint itself.
    """
    if NAME.fullmatch(folder.name):
        return folder
    name = hosts.agreed(lambda: _latest(folder))
    return None if name is None else folder / name


def latest_of_all(folders: Sequence[Path]) -> list[Path | None]:
    """The checkpoints from which runs that are one program go on: the newest round that all of them have.

    Without such a round each goes on from its own newest. Checkpoints are written one after another, so a process that
    was killed meanwhile leaves runs at two rounds; apart, they would end in the same numbers only up to rounding.
    """
    newest = [latest(folder) for folder in folders]
    if None in newest or len({path.name for path in newest if path is not None}) == 1:
        return newest
    name = hosts.agreed(lambda: _common(folders))
    return newest if name is None else [folder / name for folder in folders]


def _common(folders: Sequence[Path]) -> str | None:
    """The name of the newest checkpoint that all folders have, undamaged."""
    shared = set.intersection(*(set(names(folder)) for folder in folders))
    return next((name for name in sorted(shared, reverse=True) if all(_whole(path / name) for path in folders)), None)


def _latest(folder: Path) -> str | None:
    damaged = ""
    for name in names(folder):
        reason = _damage(folder / name)
        if reason is None:
            if damaged:
                log.warning("%s; going on from %s", damaged, name)
            return name
        damaged = damaged or f"{folder / name}: this checkpoint is damaged: {reason}"
    if damaged:
        raise PolyfedError(f"{damaged}, and there is no other to go on from")
    return None


def names(folder: Path) -> list[str]:
    """The names of a folder's checkpoints, the newest first."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((name for name in names if NAME.fullmatch(name)), reverse=True)


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None where its files are those that were written."""
    try:
        json.loads((path / "meta.json").read_bytes())
        if not (path / DIGESTS).exists():  # of an older version
            return None
        digests: dict[str, str] = json.loads((path / DIGESTS).read_bytes())
        for name in {file.name for file in path.iterdir()} - {DIGESTS, *digests}:
            return f"{DIGESTS} says nothing of {name}"
        for name, digest in digests.items():
            if _digest(path / name) != digest:
                return f"{name} is not as it was written"
    except (OSError, ValueError, AttributeError) as error:
        return str(error)
    return None


def _whole(path: Path) -> bool:
    return path.exists() and _damage(path) is None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def load(path: Path, server: Tree, start: Tree) -> tuple[Snapshot, JsonObject]:
    """The state, with a server and states of clients like those given, and the meta data.

    Process 0 reads them and sends them to the others, the rows block by block.
    """
    snapshots: list[Snapshot] = []

    def read() -> JsonObject:
        try:
            meta = json.loads((path / "meta.json").read_text())
            if meta.get("format") != FORMAT:
                raise PolyfedError(f"{path}: checkpoint format {meta.get('format')!r}, this version reads {FORMAT}")
            shared = load_tree(path / "state.safetensors", _like(server, meta["stored"]))
            rows = load_rows(path / "clients.safetensors", start, meta["stored"])
            first = list(islice(rows, 1))  # which also looks at the file's head
            snapshots.append(Snapshot(**shared, rows=chain(first, rows)))
            return meta
        except (OSError, KeyError, json.JSONDecodeError, UnicodeDecodeError, SafetensorError) as error:
            raise PolyfedError(f"{path}: this checkpoint cannot be read: {error}") from None

    meta = hosts.agreed(read)
    if not snapshots:
        like = _like(server, meta["stored"])
        snapshots.append(Snapshot(**like, rows=blank_rows(start, meta["stored"])))
    shared = hosts.sent({name: getattr(snapshots[0], name) for name in SHARED})
    norms = tuple(meta.get("norms", ()))
    return Snapshot(**shared, rows=map(hosts.sent, snapshots[0].rows), norms=norms), meta


def _meta(state: Snapshot, meta: JsonObject) -> JsonObject:
    norms = {"norms": state.norms} if state.norms else {}
    return {"format": FORMAT, "stored": len(state.clients), **norms, **meta}


def _like(server: Tree, stored: int) -> JsonObject:
    """Arrays of the shapes of a checkpoint's shared part."""
    whole, real = np.zeros(stored, np.int32), np.zeros(stored)
    return {"server": server, "clients": whole, "excluded": whole, "shares": real}


def refuse_other(path: Path, stored: JsonObject, expected: JsonObject) -> None:
    """Refuse a checkpoint of another run, naming the first thing that differs."""
    for key in sorted(set(stored) | set(expected)):
        if stored.get(key) != expected.get(key):
            raise PolyfedError(
                f"{path}: this checkpoint is of another run: {key} was {_brief(stored.get(key))}, now it is "
                f"{_brief(expected.get(key))}"
            )


def kept_rows(rows: list[JsonObject], eval_every: int, rounds: int) -> list[JsonObject]:
    """A history to go on from: without the last row of a shorter run, which a longer one would not have measured."""
    return [row for row in rows if row["round"] % eval_every == 0 or row["round"] == rounds]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _left_over(path: Path) -> bool:
    return path.name.startswith(".writing-")


def _brief(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "..."
