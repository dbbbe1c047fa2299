"""The plain values of a message (numbers, words), each checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import ConfigRecordValues, RecordDict

PlainValues = Mapping[str, ConfigRecordValues]


class Refused(Exception):
    """A message that is not accepted, and why."""


def plain_values(content: RecordDict) -> PlainValues:
    """The plain values of a message; none if it has none."""
    return content.config_records.get("about", {})


def whole_number(values: PlainValues, name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int):
        raise Refused(f"{name} must be a whole number, found {value!r}")
    return value


def real_number(values: PlainValues, name: str) -> float:
    value = values.get(name)
    if not isinstance(value, int | float):
        raise Refused(f"{name} must be a number, found {value!r}")
    return float(value)


def refuse_incomplete(values: PlainValues, *names: str) -> None:
    """Refuse an answer in which one of these values is missing."""
    missing = [name for name in names if name not in values]
    if missing:
        raise Refused(f"the answer lacks {', '.join(missing)}")
