"""Trained models for other programs.

graph.py      an ONNX graph in the making
columns.py    the preparation of a table as a part of it
dates.py      dates that are words
networks.py   linear models, perceptrons, convolutional networks
onnx_file.py  all of it in one file
portable.py   what does not fit into ONNX, in the form of jax.export
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyfed import __version__
from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.core.files import check_file, whole, write_text
from polyfed.models import Params
from polyfed.problem.prediction import Predictor

__all__ = ["SUFFIXES", "export_model"]

SUFFIXES = (".onnx", ".jax")


def export_model(path: str | Path, predictor: Predictor, params: Params, about: Mapping[str, Any]) -> list[Path]:
    """Write a model as ONNX, or in jax.export's form, as the name's end says; what was written.

    `about`: facts that go with it, beside those that follow from the model.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise PolyfedError(f"{path}: expected a name that ends in .onnx or, for any model, in .jax")
    check_file(path)
    facts = {"polyfed": __version__, **about, "loss": predictor.loss, "labels": predictor.labels}
    if path.suffix == ".onnx":
        extra_package("onnx", "onnx", f"{path}")
        from polyfed.export.onnx_file import onnx_model

        _write(path, onnx_model(predictor, params, facts).SerializeToString())
        return [path]
    from polyfed.export.portable import portable_facts, portable_model

    beside = path.with_name(f"{path.name}.json")
    _write(path, portable_model(predictor, params))
    write_text(beside, json.dumps(portable_facts(predictor, facts), indent=1) + "\n")
    return [path, beside]


def _write(path: Path, content: bytes) -> None:
    with whole(path) as part:
        part.write_bytes(content)
