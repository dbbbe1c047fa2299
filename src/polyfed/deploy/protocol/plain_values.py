"""The plain values of a message (numbers, words, JSON), each checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite

from flwr.app import ConfigRecordValues, RecordDict

from polyfed.core.errors import PolyfedError

PlainValues = Mapping[str, ConfigRecordValues]
LONGEST_TEXT = 2**24
"""The most characters of a text that is read."""
LARGEST_WHOLE = 2**53


class Refused(Exception):
    """A message that is not accepted, and why."""


def plain_values(content: RecordDict) -> PlainValues:
    """The plain values of a message; none if it has none."""
    return content.config_records.get("about", {})


def whole_number(values: PlainValues, name: str, least: int = -1) -> int:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_WHOLE:
        raise Refused(f"{name} must be a whole number, found {_brief(value)}")
    return value


def real_number(values: PlainValues, name: str) -> float:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f"{name} must be a number, found {_brief(value)}")
    try:
        return float(value)
    except OverflowError:
        raise Refused(f"{name} must be a number, found one beyond all bounds") from None


def yes_or_no(values: PlainValues, name: str) -> bool:
    value = values.get(name)
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false, found {_brief(value)}")
    return value


def text(values: PlainValues, name: str, longest: int = LONGEST_TEXT) -> str:
    value = values.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise Refused(f"{name} must be a text of at most {longest} characters, found {_brief(value)}")
    return value


def json_object(values: PlainValues, name: str) -> dict[str, object]:
    """The JSON object that a text holds. Numbers in it are finite."""
    try:
        given = json.loads(text(values, name), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{name} is no JSON: {_brief(str(error))}") from None
    if not isinstance(given, dict):
        raise Refused(f"{name} must be a JSON object, found {_brief(given)}")
    return given


def refuse_incomplete(values: PlainValues, *names: str) -> None:
    """Refuse an answer in which one of these values is missing."""
    missing = [name for name in names if name not in values]
    if missing:
        raise Refused(f"the answer lacks {', '.join(missing)}")


def refusal_in(values: PlainValues) -> str | None:
    """Why a site says that it does not answer; None if it does not say so."""
    return _brief(values["error"], 400) if "error" in values else None


def readable(error: Exception) -> str:
    """An error as one line of a log."""
    told = str(error) if isinstance(error, Refused | PolyfedError) else f"it cannot be read ({type(error).__name__})"
    return printable(told)


def printable(text: str, longest: int = 1000) -> str:
    """One line of a log: what a sender wrote forges no further lines, and speaks to no terminal."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}..."


def _brief(value: object, longest: int = 60) -> str:
    return printable(value if isinstance(value, str) and longest > 60 else repr(value), longest)


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is not finite")
    return number
