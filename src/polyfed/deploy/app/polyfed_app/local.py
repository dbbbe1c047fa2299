"""Messages as bytes, between the process that Flower starts for each of them and the site's own, which stays."""

from __future__ import annotations

import json

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

ADDRESS, SECRET = "POLYFED_SITE_ADDRESS", "POLYFED_SITE_SECRET"
"""Environment variables: where the site's process listens on this machine, and the secret that a caller must know."""


def packed(kind: str, content: RecordDict) -> bytes:
    """A message's type, plain values and arrays: a line of JSON, then the arrays' bytes."""
    arrays: dict[str, list[tuple[str, str, list[int], str, int]]] = {}
    data: list[bytes] = []
    for record, named in content.array_records.items():
        arrays[record] = [(name, a.dtype, list(a.shape), a.stype, len(a.data)) for name, a in named.items()]
        data += [array.data for array in named.values()]
    about = dict(content.config_records["about"])
    return json.dumps({"kind": kind, "about": about, "arrays": arrays}).encode() + b"\n" + b"".join(data)


def unpacked(message: bytes) -> tuple[str, RecordDict]:
    """What `packed` was given."""
    line, _, data = message.partition(b"\n")
    head = json.loads(line)
    content, start = RecordDict(), 0
    for record, listed in head["arrays"].items():
        named = {}
        for name, dtype, shape, stype, size in listed:
            named[name] = Array(dtype, tuple(shape), stype, data[start : start + size])
            start += size
        content[record] = ArrayRecord(named)
    content["about"] = ConfigRecord(head["about"])
    return head["kind"], content
