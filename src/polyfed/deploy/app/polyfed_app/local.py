"""Messages between the process that Flower starts for each of them and the site's own, which stays: plain bytes."""

from __future__ import annotations

import json
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

ADDRESS, SECRET = "POLYFED_SITE_ADDRESS", "POLYFED_SITE_SECRET"
"""Where the site's process listens on this machine, and what a caller must know."""


def packed(kind: str, content: RecordDict) -> bytes:
    """A message's type, plain values and arrays: a line of JSON, then the arrays' bytes."""
    arrays: dict[str, Any] = {}
    data = []
    for record, found in content.array_records.items():
        arrays[record] = [[name, a.dtype, list(a.shape), a.stype, len(a.data)] for name, a in found.items()]
        data += [array.data for array in found.values()]
    about = dict(content.config_records["about"])
    return json.dumps({"kind": kind, "about": about, "arrays": arrays}).encode() + b"\n" + b"".join(data)


def unpacked(given: bytes) -> tuple[str, RecordDict]:
    """What `packed` was given."""
    line, _, data = given.partition(b"\n")
    head = json.loads(line)
    content, start = RecordDict(), 0
    for record, listed in head["arrays"].items():
        found = {}
        for name, dtype, shape, stype, size in listed:
            found[name] = Array(dtype, tuple(shape), stype, data[start : start + size])
            start += size
        content[record] = ArrayRecord(found)
    content["about"] = ConfigRecord(head["about"])
    return head["kind"], content
