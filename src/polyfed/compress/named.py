"""Compressors by the name that a config gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from polyfed.compress import numbers
from polyfed.compress.contract import Compressor
from polyfed.compress.dithering import Dithering
from polyfed.compress.identity import Identity
from polyfed.compress.natural import Natural
from polyfed.compress.rand_k import RandK
from polyfed.compress.top_k import TopK
from polyfed.core.checks import flag
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject

Kind = type[Identity] | type[RandK] | type[TopK] | type[Dithering] | type[Natural]
KINDS: tuple[Kind, ...] = (Identity, RandK, TopK, Dithering, Natural)
COMPRESSORS: dict[str, Kind] = {kind.name: kind for kind in KINDS}
"""Compressors by the name that a config gives them."""


def make(spec: str | JsonObject | Compressor) -> Compressor:
    """A compressor from a config: "natural", {"name": "rand_k", "k": 10}, or a compressor itself.

    A list of whole numbers is one number per client.
    """
    if isinstance(spec, Compressor):
        return spec
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, Mapping):
        raise PolyfedError(f"compressor must be a name or a table with the key 'name', found {spec!r}")
    options = dict(spec)
    name = options.pop("name", None)
    if name is None:
        raise PolyfedError(f"compressor: the key 'name' is missing; known: {', '.join(sorted(COMPRESSORS))}")
    if not isinstance(name, str) or name not in COMPRESSORS:
        raise PolyfedError(f"compressor.name: unknown compressor {name!r}{suggestion(str(name), COMPRESSORS)}")
    kind = COMPRESSORS[name]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in options:
        if key not in fields:
            hint = suggestion(key, fields) if fields else f"; {name} takes none"
            raise PolyfedError(f"compressor.{key}: {name} has no such key{hint}")
    for key, field in fields.items():
        if key not in options and field.default is dataclasses.MISSING:
            raise PolyfedError(f"compressor.{key}: {name} needs it")
    for key, value in options.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            options[key] = _array(f"compressor.{key}", value)
    made = kind(**options)
    for key in options:
        if key == "seeded":
            flag("compressor.seeded", options[key])
        else:
            numbers.check_whole(name, key, options[key], 1, None)
    return made


def _array(key: str, values: Sequence[object]) -> np.ndarray:
    if not values or any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise PolyfedError(f"{key} must be a whole number, or a list of them with one per client, found {values!r}")
    return np.asarray(values, np.int32)
