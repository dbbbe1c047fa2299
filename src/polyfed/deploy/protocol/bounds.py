"""What a site may say of itself: the facts that arrive before round 1, read against a schema with bounds.

A fact reaches every other site: classes and features decide the model's size, constants the stepsize of all. So what
no honest site would report is refused by name, before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from statistics import median_low

from polyfed.core.files import JsonObject
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.studies.newcomers.fitting import KINDS, DataKind

CLASS_ROWS = "class_rows"
"""What a site reports only if class weights are to be balanced: how many training rows of each class it has."""

LARGEST_NUMBER = 1e12
"""Of a constant or a column."""
MOST_NUMBERS = 10**8
"""In one row."""
MOST_NAMES, LONGEST_NAME = 10**6, 256
FARTHEST = 1e6
"""How much larger than its fellows' a site's smoothness constant may be."""


@dataclass(frozen=True)
class FactBounds:
    """The most that a site may declare; part of the section [federation] of the server's config."""

    rows: int = 10**9
    classes: int = 10**4


ANY = FactBounds(classes=10**7)
"""For a site, which is told what the server found good."""


def read_facts(given: Mapping[str, object], asked: Sequence[str], bounds: FactBounds) -> JsonObject:
    """The facts that were asked for, each of its type and within bounds; nothing else is taken."""
    _exactly(given, asked, "the facts")
    readers = {
        "kind": lambda value: read_kind(value, bounds),
        "rows": lambda value: _rows(value, bounds),
        "columns": _columns,
        "smoothness": _smoothness,
        "sampled": lambda value: _numbers(value, 2, "sampled constants"),
        CLASS_ROWS: lambda value: _counts(value, bounds),
    }
    return {name: readers[name](given[name]) for name in asked}


def read_metrics(given: Mapping[str, object]) -> dict[str, dict[str, dict[str, float]]]:
    """A site's metrics: numbers by model, split and name."""
    metrics: dict[str, dict[str, dict[str, float]]] = {}
    for model, splits in given.items():
        metrics[model[:LONGEST_NAME]] = {
            split[:LONGEST_NAME]: {
                name[:LONGEST_NAME]: float(value)
                for name, value in _object(values, "metrics").items()
                if isinstance(value, int | float) and abs(value) <= LARGEST_NUMBER
            }
            for split, values in _object(splits, "metrics").items()
        }
    return metrics


def refuse_outlier(constants: Mapping[str, float]) -> None:
    """Refuse a smoothness constant that is far beyond the other sites': it alone would decide everybody's stepsize."""
    usual = median_low(constants.values()) if constants else 0.0
    for site, value in constants.items():
        if value > FARTHEST * max(usual, 1e-12):
            raise Refused(
                f"site '{site}' reports a smoothness constant of {value:g}, more than {FARTHEST:g} times the others' "
                f"{usual:g}"
            )


def read_kind(value: object, bounds: FactBounds) -> JsonObject:
    """What rows and labels look like, as JSON of a `DataKind`."""
    given = _object(value, "kind")
    _exactly(given, [field.name for field in fields(DataKind)], "kind")
    features, targets = _shape(given["features"], "features"), _shape(given["targets"], "targets")
    if given["kind"] not in KINDS.values():
        raise Refused("kind.kind must be bytes, whole numbers or real numbers")
    classes, outputs = (_optional_whole(given[name], name, bounds.classes) for name in ("classes", "outputs"))
    names = _names(given["feature_names"], "feature_names")
    if names is not None and (len(features) != 1 or len(names) != features[0]):
        raise Refused(f"kind.feature_names must be one for each of the features {features}, found {len(names)}")
    labels = _names(given["label_names"], "label_names")
    if labels is not None and len(labels) > bounds.classes:
        raise Refused(f"kind.label_names are {len(labels)}, at most {bounds.classes} are allowed")
    signs = given["signs"]
    if signs is not None:
        signs = _numbers(signs, 2, "kind.signs", least=-LARGEST_NUMBER)
    return {
        "features": features,
        "kind": given["kind"],
        "feature_names": names,
        "targets": targets,
        "outputs": outputs,
        "classes": classes,
        "label_names": labels,
        "signs": signs,
    }


def _rows(value: object, bounds: FactBounds) -> list[int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused("rows must be two whole numbers")
    train, validation = (_whole(number, "rows", bounds.rows) for number in value)
    if train < 1:
        raise Refused("rows must be at least one for training")
    return [train, validation]


def _columns(value: object) -> dict[str, float]:
    given = _object(value, "columns")
    if len(given) > 1000 or any(len(name) > LONGEST_NAME for name in given):
        raise Refused("columns must be at most 1000 names of at most 256 letters")
    return {name: _number(number, f"column '{name}'", -LARGEST_NUMBER) for name, number in given.items()}


def _smoothness(value: object) -> list[float]:
    largest, least, trace = _numbers(value, 3, "smoothness constants")
    if least > largest * (1 + 1e-9):
        raise Refused(f"smoothness constants must be L, and mu at most L, found {largest:g} and {least:g}")
    return [largest, least, trace]


def _counts(value: object, bounds: FactBounds) -> list[int]:
    if not isinstance(value, list) or len(value) > bounds.classes:
        raise Refused(f"{CLASS_ROWS} must be a list of at most {bounds.classes} whole numbers")
    return [_whole(number, CLASS_ROWS, bounds.rows) for number in value]


def _shape(value: object, what: str) -> list[int]:
    if not isinstance(value, list) or len(value) > 4:
        raise Refused(f"kind.{what} must be a list of at most 4 whole numbers")
    shape = [_whole(number, f"kind.{what}", MOST_NUMBERS) for number in value]
    if prod(shape) > MOST_NUMBERS or any(size < 1 for size in shape):
        raise Refused(f"kind.{what} must be numbers above 0 with a product of at most {MOST_NUMBERS}, found {shape}")
    return shape


def _names(value: object, what: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_NAMES:
        raise Refused(f"kind.{what} must be a list of names")
    names = [name for name in value if isinstance(name, str) and len(name) <= LONGEST_NAME]
    if len(names) < len(value) or len(set(names)) < len(names):
        raise Refused(f"kind.{what} must be different texts of at most {LONGEST_NAME} letters")
    return names


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise Refused(f"{what} must be a JSON object")
    return value


def _exactly(given: Mapping[str, object], names: Sequence[str], what: str) -> None:
    if set(given) != set(names):
        lacking, beyond = sorted(set(names) - set(given)), len(set(given) - set(names))
        raise Refused(f"{what} must be {', '.join(names)}: {', '.join(lacking) or 'none'} missing, {beyond} too many")


def _optional_whole(value: object, what: str, most: int) -> int | None:
    return None if value is None else _whole(value, f"kind.{what}", most)


def _whole(value: object, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        shown = value if isinstance(value, int) and abs(value) < 10**30 else type(value).__name__
        raise Refused(f"{what} must be a whole number from 0 to {most}, found {shown}")
    return value


def _number(value: object, what: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST_NUMBER:
        raise Refused(f"{what} must be a number from {least:g} to {LARGEST_NUMBER:g}")
    return float(value)


def _numbers(value: object, count: int, what: str, least: float = 0.0) -> list[float]:
    if not isinstance(value, list) or len(value) != count:
        raise Refused(f"{what} must be {count} numbers")
    return [_number(number, what, least) for number in value]
