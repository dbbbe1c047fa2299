"""A federation as one safetensors file: the arrays, and everything else as JSON in its header."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.data.formats.failures import reason
from polyfed.data.option_checks import PathLike, existing_path
from polyfed.data.split import PARTS, Split
from polyfed.data.tables.preparation import Preparation

if TYPE_CHECKING:
    from polyfed.data.federation import Federation

FORMAT = 1
KEY = "polyfed.federation"


def save(federation: Federation, path: PathLike) -> None:
    """Write atomically: a reader sees the old file or the whole new one, even after a power cut."""
    from safetensors.numpy import save_file

    target = Path(path)
    tensors, text_columns = {}, {}
    for part in PARTS:
        split = federation.split(part)
        for name in ("x", "y", "offsets"):
            tensors[f"{part}.{name}"] = np.ascontiguousarray(getattr(split, name))
    for name, values in federation.columns.items():
        values = np.asarray(values)
        if values.dtype.kind in "biuf":
            tensors[f"column.{name}"] = np.ascontiguousarray(values)
        else:
            text_columns[name] = [str(value) for value in values]
    header = {
        "format": FORMAT,
        "clients": federation.clients,
        "classes": federation.classes,
        "label_names": federation.label_names,
        "feature_names": federation.feature_names,
        "columns": list(federation.columns),
        "text_columns": text_columns,
        "source": federation.source,
        "preparation": None if federation.preparation is None else federation.preparation.to_json(),
    }
    if not target.parent.is_dir():
        raise PolyfedError(f"{target.parent}: no such folder to save the federation in")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata={KEY: json.dumps(header)})
        _sync(temporary)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(target.parent)


def load(cls: type[Federation], path: PathLike) -> Federation:
    """Read a file that `save` wrote, or refuse it by name."""
    from safetensors import SafetensorError, safe_open

    file = existing_path("path", path)
    try:
        with safe_open(file, framework="numpy") as content:
            metadata = content.metadata() or {}
            if KEY not in metadata:
                raise PolyfedError(f"{file}: a safetensors file, but not a saved federation")
            header = json.loads(metadata[KEY])
            if header["format"] != FORMAT:
                raise PolyfedError(f"{file}: written in format {header['format']}, expected {FORMAT}")
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        return _rebuild(cls, header, tensors)
    except PolyfedError as error:
        message = str(error)
        raise PolyfedError(message if message.startswith(str(file)) else f"{file}: {message}") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise PolyfedError(f"{file}: cannot be read as a saved federation ({reason(error)})") from None


def _rebuild(cls: type[Federation], header: JsonObject, tensors: dict[str, np.ndarray]) -> Federation:
    parts = {part: Split(*(tensors[f"{part}.{name}"] for name in ("x", "y", "offsets"))) for part in PARTS}
    text, preparation = header["text_columns"], header.get("preparation")
    classes = header["classes"]
    for part, split in parts.items():
        if classes is not None and split.y.size and not (split.y.min() >= 0 and split.y.max() < classes):
            raise PolyfedError(f"{part} has labels in {split.y.min()}..{split.y.max()}, expected 0..{classes - 1}")
    return cls(
        clients=tuple(header["clients"]),
        **parts,
        classes=classes,
        label_names=_tuple(header["label_names"]),
        feature_names=_tuple(header["feature_names"]),
        columns={
            name: np.asarray(text[name]) if name in text else tensors[f"column.{name}"] for name in header["columns"]
        },
        source=header["source"],
        preparation=None if preparation is None else Preparation.from_json(preparation),
    )


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _sync(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
