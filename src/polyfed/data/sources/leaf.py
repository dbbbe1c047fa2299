"""LEAF's json files: FEMNIST by writer and Shakespeare by role.

A folder has `train/` and `test/`, each with json files {users, num_samples, user_data: {user: {x, y}}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polyfed.core.aligned import aligned, take
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.data.federation import Federation
from polyfed.data.option_checks import PathLike, existing_path, flag, integer
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.characters import ALPHABET, foreign_note, plain, tokens
from polyfed.data.sources.label_names import EMNIST
from polyfed.data.sources.published import data_folder
from polyfed.data.sources.rows import (
    Rows,
    federation_of_rows,
    held_out,
    natural_clients,
    split_at_random,
    split_in_order,
)

Convert = Callable[[list[object], list[object], str], tuple[np.ndarray, np.ndarray, int]]
"""Makes arrays of a user's x and y, and counts characters outside the alphabet; errors begin with the last argument."""
LABELS = EMNIST["byclass"]


class LeafRows(NamedTuple):
    """The rows of all files of a folder."""

    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray
    """The user of each row, by number."""
    held: np.ndarray
    """Which rows are of the test files."""
    users: tuple[str, ...]
    foreign: int
    """How many characters were outside the alphabet."""


def femnist(
    path: PathLike | None = None,
    clients: int | None = None,
    min_rows: int = 2,
    digits: bool = False,
    validation: float = 0.1,
    test: float | str = "published",
    seed: int = 0,
) -> Federation:
    """LEAF's FEMNIST: digits and letters of 28 x 28 bytes by the writer, 62 classes; 10 with `digits` alone.

    `test` is "published" (the rows of the test files) or a share of each writer's rows, drawn from both folders.
    """
    flag("digits", digits)
    rows = _load("femnist", path, _images)
    if digits:
        kept = np.flatnonzero(rows.y < 10)
        x, y, owner, held = take(rows.x, kept), rows.y[kept], rows.owner[kept], rows.held[kept]
        rows = LeafRows(x, y, owner, held, rows.users, foreign=0)
    names = LABELS[:10] if digits else LABELS
    given = {"digits": digits}
    return _federate("femnist", path, rows, names, given, clients, min_rows, validation, test, seed)


def shakespeare_leaf(
    path: PathLike | None = None,
    clients: int | None = None,
    min_rows: int = 2,
    validation: float = 0.1,
    test: float | str = "published",
    seed: int = 0,
) -> Federation:
    """LEAF's Shakespeare: 80 characters by the speaking role, labelled with the next one, 80 classes.

    `test` is "published" (the rows of the test files) or a share of each role's rows: its last ones.
    """
    rows = _load("shakespeare_leaf", path, _texts)
    return _federate(
        "shakespeare_leaf", path, rows, tuple(ALPHABET), {}, clients, min_rows, validation, test, seed, ordered=True
    )


def _federate(
    name: str,
    path: PathLike | None,
    content: LeafRows,
    labels: tuple[str, ...],
    given: Mapping[str, object],
    clients: int | None,
    min_rows: int,
    validation: float,
    test: float | str,
    seed: int,
    ordered: bool = False,
) -> Federation:
    validation, share = held_out(validation, test)
    integer("seed", seed)
    x, y, owner, held, users, foreign = content
    where = str(_folder(name, path))
    if share is None and not held.any():
        raise PolyfedError(f"{where}: has no test/ folder, expected one, or a share such as test = 0.2")
    order = np.argsort(owner, kind="stable")
    every = dict(zip(users, np.split(order, np.cumsum(np.bincount(owner, minlength=len(users)))[:-1]), strict=True))
    sizes = {user: len(own) for user, own in every.items()}
    if share is None:
        for user in _one_sided(every, held):
            if not given.get("digits"):  # letters that are left out may have been all that a writer had there
                raise PolyfedError(
                    f"{where}: user {user!r} has rows in only one of train/ and test/, expected LEAF's split by sample "
                    "(-t sample), or a share such as test = 0.2 to split every user anew"
                )
            sizes[user] = 0
    chosen = natural_clients(sizes, clients, min_rows, seed, where=where, what="users")
    own = [every[user] for user in chosen]
    rows = own if share is not None else [r[~held[r]] for r in own]
    parts: dict[str, Rows] = (
        split_in_order(chosen, rows, validation, share or 0.0)
        if ordered
        else split_at_random(chosen, rows, y, validation, share or 0.0, seed)
    )
    if share is None:
        parts["test"] = [r[held[r]] for r in own]
    source = {"name": name, **({} if path is None else {"path": str(path)}), "clients": clients, "min_rows": min_rows}
    source |= {**given, "validation": validation, "test": test, "seed": seed}
    if foreign:
        source["note"] = foreign_note(foreign)
    return federation_of_rows(x, y, chosen, parts, classes=len(labels), label_names=labels, source=source)


def _one_sided(rows: dict[str, np.ndarray], held: np.ndarray) -> list[str]:
    """The users without training or without test rows."""
    return [user for user, own in rows.items() if len(own) and (held[own].all() or not held[own].any())]


def _folder(name: str, path: PathLike | None) -> Path:
    return data_folder() / name if path is None else existing_path("path", path)


def _load(name: str, path: PathLike | None, convert: Convert) -> LeafRows:
    folder = _folder(name, path)
    files = {part: sorted((folder / part).glob("*.json")) for part in ("train", "test")}
    if not files["train"]:
        raise PolyfedError(
            f"{folder / 'train'}: no json files there, expected those that LEAF's preprocess.sh writes to data/train "
            "and data/test"
        )
    return parsed(_read, [*files["train"], *files["test"]], len(files["train"]), convert)


def _read(files: Sequence[Path], training: int, convert: Convert) -> LeafRows:
    """All rows of all files, user by user within a file."""
    users: dict[str, int] = {}
    xs, ys, owners, held, foreign = [], [], [], [], 0
    for number, file in enumerate(files):
        for user, data in _users(file):
            x, y, odd = convert(data["x"], data["y"], f"{file}: user {user!r}")
            xs.append(x)
            ys.append(y)
            owners.append(np.full(len(y), users.setdefault(user, len(users)), np.int64))
            held.append(np.full(len(y), number >= training))
            foreign += odd
    if any(x.dtype == np.float32 for x in xs):  # one image that is no whole number of 255ths makes them all floats
        xs = [x if x.dtype == np.float32 else x.astype(np.float32) / 255 for x in xs]
    if not xs:
        raise PolyfedError(f"{files[0]}: has no users")
    x, y = aligned(np.concatenate(xs)), np.concatenate(ys)
    return LeafRows(x, y, np.concatenate(owners), np.concatenate(held), tuple(users), foreign)


def _users(file: Path) -> Iterator[tuple[str, dict[str, list[object]]]]:
    """(user, {x, y}) of a file, after a check of its form."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PolyfedError(f"{file}: not valid json ({error})") from None
    except OSError as error:
        raise PolyfedError(f"{file}: cannot be read ({error.strerror})") from None
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            raise PolyfedError(f"{file}: there is no {key!r}, expected LEAF's users, num_samples and user_data")
    users, counts, data = content["users"], content["num_samples"], content["user_data"]
    if len(users) != len(counts):
        raise PolyfedError(f"{file}: has {len(users)} users and {len(counts)} num_samples, expected equal numbers")
    for user in data.keys() - set(map(str, users)):
        raise PolyfedError(f"{file}: user_data has {user!r}, which is not one of its users")
    for user, count in zip(users, counts, strict=True):
        user = str(user)
        own = data.get(user)
        if not isinstance(own, dict):
            raise PolyfedError(f"{file}: user {user!r} is not in user_data{suggestion(user, list(data)[:1000])}")
        for key in ("x", "y"):
            if not isinstance(own.get(key), list):
                raise PolyfedError(f"{file}: user {user!r} has no list {key!r}")
            if len(own[key]) != count:
                raise PolyfedError(f"{file}: user {user!r} has {len(own[key])} {key}, num_samples says {count}")
        if count:
            yield user, own


def _images(x: list[object], y: list[object], what: str) -> tuple[np.ndarray, np.ndarray, int]:
    try:
        pixels, labels = np.asarray(x, np.float64), np.asarray(y)
    except (ValueError, TypeError):
        raise PolyfedError(f"{what} has images of different lengths or with words, expected 784 numbers each") from None
    if pixels.shape[1:] != (784,):
        raise PolyfedError(f"{what} has images of shape {pixels.shape[1:]}, expected 784 numbers each")
    if not (pixels.min() >= 0 and pixels.max() <= 1):
        raise PolyfedError(f"{what} has pixels outside [0, 1], or that are not numbers")
    if labels.dtype.kind != "i" or labels.ndim != 1 or labels.min() < 0 or labels.max() >= len(LABELS):
        raise PolyfedError(f"{what} has labels other than whole numbers from 0 to {len(LABELS) - 1}")
    scaled = pixels * 255
    whole = np.rint(scaled)
    exact = np.abs(scaled - whole).max() < 1e-3
    kept = whole.astype(np.uint8) if exact else pixels.astype(np.float32)
    return kept.reshape(-1, 28, 28), labels.astype(np.int32), 0


def _texts(x: list[object], y: list[object], what: str) -> tuple[np.ndarray, np.ndarray, int]:
    texts = [plain(text) for text in x if isinstance(text, str)]
    following = [plain(text) for text in y if isinstance(text, str)]
    if len(texts) != len(x) or len(following) != len(y):
        raise PolyfedError(f"{what} has x or y that are not text, expected strings of 80 characters and of one")
    for row, (text, after) in enumerate(zip(texts, following, strict=True)):
        if len(text) != 80 or len(after) != 1:
            raise PolyfedError(
                f"{what}, row {row} (counted from 0) has {len(text)} characters and {len(after)} after them, "
                "expected 80 and one"
            )
    codes, odd = tokens("".join(texts))
    labels, odd_labels = tokens("".join(following))
    return codes.reshape(-1, 80), labels, odd + odd_labels
