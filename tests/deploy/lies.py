"""What a site may send that does not belong: changes to honest answers, and what the server's log says of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Answer

Lie = tuple[Callable[[Answer], Answer], str]
"""The change, and what is said of it; {rows} stands for the site's training rows."""


def changed(reply: Answer, arrays: dict[str, np.ndarray] | None = None, **about: Any) -> Answer:
    """An answer with other arrays, or other plain values."""
    if arrays is not None:
        reply.content["upload"] = wire.as_record(arrays)
    reply.content.config_records["about"].update(about)
    return reply


def uploaded(reply: Answer) -> dict[str, np.ndarray]:
    return wire.as_arrays(reply.content.array_records["upload"])


def scaled(reply: Answer, factor: float) -> Answer:
    return changed(reply, {name: array * factor for name, array in uploaded(reply).items()})


def filled(reply: Answer, value: float) -> Answer:
    return changed(reply, {name: np.full_like(array, value) for name, array in uploaded(reply).items()})


def with_bytes(reply: Answer, data: bytes, stype: str = "numpy.ndarray") -> Answer:
    record = reply.content.array_records["upload"]
    reply.content["upload"] = ArrayRecord({name: Array("float64", (1,), stype, data) for name in record})
    return reply


def claiming(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """A NumPy file whose head claims a shape that is not there."""
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(24)


def without(reply: Answer, name: str) -> Answer:
    del reply.content.config_records["about"][name]
    return reply


def renamed(reply: Answer, name: str) -> Answer:
    """Its first array under another name."""
    first, *others = uploaded(reply).items()
    return changed(reply, {name: first[1], **dict(others)})


def as_arrays(reply: Answer) -> Answer:
    reply.content["about"] = wire.as_record({"round": np.ones(1)})
    return reply


def head(descr: str) -> bytes:
    """A NumPy file of one number of this type."""
    return claiming((1,), descr)


HOSTILE: dict[str, Lie] = {
    "weight below zero": (lambda reply: changed(reply, weight=-2.0), "its weight must be a number above 0"),
    "weight zero": (lambda reply: changed(reply, weight=0.0), "its weight must be a number above 0"),
    "weight beyond the rows": (lambda reply: changed(reply, weight=1e9), r"its weight is 1e\+09, expected {rows:g}"),
    "weight as text": (lambda reply: changed(reply, weight="1"), "weight must be a number, found '1'"),
    "weight as a list": (lambda reply: changed(reply, weight=[1.0]), "weight must be a number"),
    "weight as true": (lambda reply: changed(reply, weight=True), "weight must be a number, found True"),
    "weight not finite": (lambda reply: changed(reply, weight=float("nan")), "its weight is not finite"),
    "upload of 1e30": (lambda reply: scaled(reply, 1e30), "its upload has norm"),
    "round as text": (lambda reply: changed(reply, round="1"), "round must be a whole number, found '1'"),
    "good as a number": (lambda reply: changed(reply, good=1), "good must be true or false, found 1"),
    "site as a list": (lambda reply: changed(reply, site=["x"]), "it answers as site"),
    "garbage": (lambda reply: with_bytes(reply, b"garbage"), "cannot be read"),
    "no bytes": (lambda reply: with_bytes(reply, b""), "cannot be read"),
    "unknown serialisation": (lambda reply: with_bytes(reply, b"", "pickle"), "serialised in an unknown way"),
    "2^40 numbers": (lambda reply: with_bytes(reply, claiming((2**40,))), "not as many as its head says"),
    "a shape below zero": (lambda reply: with_bytes(reply, claiming((-1,))), "cannot be read"),
    "no content": (lambda reply: Answer(reply.asked, RecordDict()), "the answer lacks run"),
    "a code": (lambda reply: changed(reply, code="{}"), "a code, although nothing is compressed"),
    "no weight": (lambda reply: without(reply, "weight"), "the answer lacks weight"),
    "weight of 2^62": (lambda reply: changed(reply, weight=2**62), r"its weight is 4.61169e\+18, expected"),
    "run as a number": (lambda reply: changed(reply, run=5), "run must be a text"),
    "another run": (
        lambda reply: changed(reply, run="other"),
        r"a replayed message: an upload of round \d+ of 'other'",
    ),
    "another round": (lambda reply: changed(reply, round=10**6), "a replayed message: an upload of round 1000001"),
    "round below zero": (lambda reply: changed(reply, round=-(2**63)), "round must be a whole number"),
    "fingerprint as a list": (lambda reply: changed(reply, fingerprint=["x"]), "another version of"),
    "silent as text": (lambda reply: changed(reply, silent="no"), "silent must be true or false, found 'no'"),
    "not good": (lambda reply: changed(reply, good=False), "its update is not finite"),
    "not a number": (lambda reply: filled(reply, float("nan")), "its update is not finite"),
    "infinite": (lambda reply: filled(reply, float("inf")), "its update is not finite"),
    "half precision": (
        lambda reply: changed(reply, {name: a.astype(np.float16) for name, a in uploaded(reply).items()}),
        "float16.*expected float64",
    ),
    "another shape": (
        lambda reply: changed(reply, {name: np.zeros((2, 2, 2)) for name in uploaded(reply)}),
        r"float64\[2, 2, 2\], expected",
    ),
    "another name": (lambda reply: renamed(reply, "../../x"), r"has the arrays \['../../x'"),
    "words": (lambda reply: with_bytes(reply, head("<U4")), "it is not of numbers"),
    "objects": (lambda reply: with_bytes(reply, head("|O")), "it is not of numbers"),
    "dates": (lambda reply: with_bytes(reply, head("<M8[s]")), "it is not of numbers"),
    "a head that is Python": (lambda reply: with_bytes(reply, head("'+open('/x')+'")), "cannot be read"),
    "arrays in place of values": (as_arrays, "refused: "),
    "a text without end": (lambda reply: changed(reply, run="x" * 10**6), "run must be a text of at most 200"),
    "a line of the log": (
        lambda reply: changed(reply, error="x\n2026-01-01 INFO round 9 of 9: \x1b[2J"),
        r"refused: round \d+: x\?2026-01-01 INFO round 9 of 9: \?\[2J",
    ),
}


FACTS: dict[str, tuple[dict[str, Any], str]] = {
    "2^40 rows": ({"rows": [2**40, 0]}, r"rows must be a whole number from 0 to 1000000000"),
    "rows below zero": ({"rows": [-5, 0]}, "rows must be a whole number"),
    "no rows": ({"rows": [0, 0]}, "rows must be at least one"),
    "rows as text": ({"rows": "many"}, "rows must be two whole numbers"),
    "10^6 classes": ({"kind": {"classes": 10**6, "outputs": 10**6}}, "kind.classes must be a whole number from 0 to"),
    "features without end": ({"kind": {"features": [10**7, 10**7]}}, "with a product of at most"),
    "a kind that is none": ({"kind": {"kind": "pickles"}}, "kind.kind must be"),
    "columns beyond bounds": ({"columns": {"lean": 1e300}}, "column 'lean' must be a number"),
    "something else": ({"surprise": 1}, "1 too many"),
}
"""Facts before round 1, and what is said of them."""


def lied(about: ConfigRecord, change: dict[str, Any]) -> None:
    """Facts with some of them changed, where an answer has any."""
    if "facts" in about:
        facts = json.loads(str(about["facts"]))
        for name, value in change.items():
            facts[name] = {**facts[name], **value} if isinstance(value, dict) and name in facts else value
        about["facts"] = json.dumps(facts)
