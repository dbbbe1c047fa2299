"""A message as bytes: a head in JSON (its kind, its plain values, where each array lies), and then the arrays.

What it holds is one of Flower's records, `flwr.app.RecordDict`. How a record travels is no part of Flower's public
interface, so that is said here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from polyfed.deploy.protocol.plain_values import Refused

LARGEST_HEAD = 2**24
"""The most bytes of a head."""
SIZE = 8
"""The bytes at the beginning that say how long the head is."""
ERROR = "error"
"""The kind of an answer that has no content: its plain values say why."""


@dataclass
class Envelope:
    """What travels: a kind of message, and its content."""

    kind: str
    content: RecordDict = field(default_factory=RecordDict)

    def parts(self) -> list[bytes]:
        """Its bytes in pieces; an array that several messages share is there once."""
        values = {name: dict(record) for name, record in self.content.config_records.items()}
        arrays = {
            name: {key: [array.dtype, list(array.shape), array.stype, len(array.data)] for key, array in record.items()}
            for name, record in self.content.array_records.items()
        }
        if len(values) + len(arrays) != len(self.content):
            raise TypeError("a message has plain values and arrays, and nothing else")
        head = json.dumps({"kind": self.kind, "values": values, "arrays": arrays}).encode()
        pieces = [array.data for record in self.content.array_records.values() for array in record.values()]
        return [len(head).to_bytes(SIZE, "big"), head, *pieces]

    @classmethod
    def read(cls, data: bytes) -> Envelope:
        """The message in these bytes, or a refusal: whoever wrote them may have meant harm."""
        size = int.from_bytes(data[:SIZE], "big")
        if len(data) < SIZE + size or size > LARGEST_HEAD:
            raise Refused("the message has no head")
        try:
            head = json.loads(data[SIZE : SIZE + size])
            places = _Places(data, SIZE + size)
            content = RecordDict()
            for name, values in head["values"].items():
                content[name] = ConfigRecord(values)
            for name, arrays in head["arrays"].items():
                content[name] = ArrayRecord({key: places.array(*entry) for key, entry in arrays.items()})
            kind = head["kind"]
            if not isinstance(kind, str) or places.at != len(data):
                raise ValueError("it has bytes that belong to no array")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(f"the message cannot be read: {type(error).__name__}: {error!s:.120}") from None
        return cls(kind, content)


class _Places:
    """Takes arrays from a message's bytes, one after another."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def array(self, dtype: Any, shape: Any, stype: Any, size: Any) -> Array:
        whole = [size, *shape] if isinstance(shape, list) else [None]
        if not all(type(number) is int for number in whole) or not isinstance(dtype, str) or not isinstance(stype, str):
            raise ValueError("an array has a head that is none")
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("an array has more bytes than there are")
        self.at += size
        return Array(dtype, tuple(shape), stype, self.data[self.at - size : self.at])


def error_envelope(why: str) -> Envelope:
    """An answer without content."""
    return Envelope(ERROR, RecordDict({ERROR: ConfigRecord({"why": why[:1000]})}))
