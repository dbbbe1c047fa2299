"""Recorded traffic of real runs, changed at random: every message is taken or refused, and none ends or stops anything.

What is changed is what an attacker holds: plain values, arrays and their heads, and the bytes that travel. The server's
and the site's own readers get it, in the state in which they were during the run.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyfed as pf
from polyfed.deploy.network.mailboxes import read_answer
from polyfed.deploy.protocol import messages
from polyfed.deploy.protocol.envelope import Envelope
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.site.policy import RunPolicy
from polyfed.deploy.site.site import Site
from tests.deploy.expected import small
from tests.deploy.loopback import Loopback

SLOWEST = 5.0
"""Seconds that one message may take: far more than any does, and it catches a hang."""
ODD: list[Any] = [
    *(0, -1, 1, 2**31, 2**53, 2**62, -(2**63), True, False, 0.0, -0.0, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), "", "x", "1", "null", "[]", "{}", '{"seed": {}}', "\x00", "../../x", "x" * 10_000),
    *(b"", b"\x00", b"\xff" * 100, [], [1], [1.5], ["a"], [True], [b"x"], "[" * 2000, '{"a":' * 500, "1e999", "NaN"),
]
"""Values that something might stumble over."""

Taken = tuple[str, messages.TakeAnswer, str, RecordDict]
"""A reader of the server, the site that it reads, and the answer that it read; the first says what run it was."""


Recorded = tuple[list[Taken], list[tuple[Site, str, RecordDict]]]
QUICK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "by size": ({**small("fedavg"), "weighting": "size"}, {}),
    "masked": ({**small("fedavg")}, {"secure": True}),
}
ALL = QUICK | {
    "several parts": ({**small("scaffold")}, {}),
    "compressed": ({"name": "dcgd", "lr": 0.01, "compressor": {"name": "top_k", "k": 3}}, {}),
    "constants": ({"name": "scaffnew", "p": 0.5}, {}),
}


@pytest.fixture(scope="module")
def recorded(three, tmp_path_factory) -> Recorded:
    return record(three, tmp_path_factory, QUICK)


@pytest.fixture(scope="module")
def all_recorded(three, tmp_path_factory) -> Recorded:
    return record(three, tmp_path_factory, ALL)


def record(three: pf.Federation, tmp_path_factory: pytest.TempPathFactory, runs: Any) -> Recorded:
    """All answers of these runs with their readers, and all questions to one site."""
    answers: list[Taken] = []
    questions: list[tuple[Site, str, RecordDict]] = []
    real_taken, real_answer = messages._taken, Site.answer
    with pytest.MonkeyPatch.context() as patch:
        for name, (method, rules) in runs.items():
            # a site that asks before it accepts other terms: a change to them never reaches the compiler
            policy = RunPolicy(smallest_batch=1, fewest_sites=1, changes="ask")
            grid = Loopback(
                three,
                tmp_path_factory.mktemp("fuzz"),
                policy=policy,
                metrics=name == "by size",
                model=name == "by size",
            )

            def taken(take: messages.TakeAnswer, site: str, reply: messages.Answer, name: str = name) -> str | None:
                answers.append((name, take, site, copy.deepcopy(reply.content)))
                return real_taken(take, site, reply)

            def answer(site: Site, kind: str, content: RecordDict) -> RecordDict:
                if site.name == "site-0":
                    questions.append((site, kind, copy.deepcopy(content)))
                return real_answer(site, kind, content)

            patch.setattr(messages, "_taken", taken)
            patch.setattr(Site, "answer", answer)
            grid.serve(method, {"rounds": 2}, **rules)
    return answers, questions


def changed(content: RecordDict, rng: np.random.Generator) -> RecordDict:
    """A message of which one to three things were changed."""
    content = copy.deepcopy(content)
    for _ in range(rng.integers(1, 4)):
        CHANGES[rng.integers(len(CHANGES))](content, rng)
    return content


def _odd_value(content: RecordDict, rng: np.random.Generator) -> None:
    about = content.config_records.get("about")
    if about:
        about[str(rng.choice(list(about)))] = ODD[rng.integers(len(ODD))]


def _missing_value(content: RecordDict, rng: np.random.Generator) -> None:
    about = content.config_records.get("about")
    if about:
        del about[str(rng.choice(list(about)))]


def _other_json(content: RecordDict, rng: np.random.Generator) -> None:
    """A text that is JSON, with a part of it replaced by something odd."""
    about = content.config_records.get("about")
    texts = [name for name, value in (about or {}).items() if isinstance(value, str) and value.startswith("{")]
    if about is None or not texts:
        return
    name = str(rng.choice(texts))
    try:
        tree = json.loads(str(about[name]))
    except ValueError:  # it was changed before
        return
    node, odd = tree, [odd for odd in ODD if not isinstance(odd, bytes)]
    while isinstance(node, dict | list) and node:
        key: Any = rng.choice(list(node)) if isinstance(node, dict) else int(rng.integers(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.3:
            action = rng.integers(3)
            if action == 0 and isinstance(node, dict):
                del node[key]
            else:
                value = odd[rng.integers(len(odd))]
                node[key] = (
                    value if not isinstance(value, list) or all(not isinstance(v, bytes) for v in value) else None
                )
            break
        node = node[key]
    about[name] = json.dumps(tree)


def _cut_text(content: RecordDict, rng: np.random.Generator) -> None:
    about = content.config_records.get("about")
    for name, value in list((about or {}).items()):
        if about is not None and isinstance(value, str) and value:
            about[name] = value[: rng.integers(len(value))]


def _other_bytes(content: RecordDict, rng: np.random.Generator) -> None:
    """Bytes of an array flipped, cut or added; most often in its head."""
    for record in content.array_records.values():
        for name, array in list(record.items()):
            data = bytearray(array.data)
            where = int(rng.integers(min(len(data), 128 if rng.random() < 0.7 else len(data)))) if data else 0
            action = rng.integers(4)
            if action == 0 and data:
                data[where] ^= 1 << int(rng.integers(8))
            elif action == 1:
                del data[where:]
            elif action == 2:
                data[where:where] = rng.bytes(int(rng.integers(1, 40)))
            elif data:
                data[where : where + 8] = rng.bytes(8)
            record[name] = Array(array.dtype, array.shape, array.stype, bytes(data))


def _other_array(content: RecordDict, rng: np.random.Generator) -> None:
    made: list[Any] = [
        np.zeros((0,)),
        np.full(3, np.nan),
        np.zeros((2, 2, 2)),
        np.array(["text"]),
        np.zeros(4, "M8[s]"),
        np.zeros(2, [("a", "f8")]),
        np.full(5, 1e308),
        np.zeros(3, np.float16),
        np.zeros(()),
        np.arange(7, dtype=np.uint64),
    ]
    for record in content.array_records.values():
        for name in list(record):
            record[name] = Array(made[rng.integers(len(made))])


def _other_shape(content: RecordDict, rng: np.random.Generator) -> None:
    for record in content.array_records.values():
        for name, array in list(record.items()):
            stype = ["numpy.ndarray", "pickle", "", "torch.tensor"][rng.integers(4)]
            record[name] = Array(array.dtype, (2**40, -1), stype, array.data)


def _other_names(content: RecordDict, rng: np.random.Generator) -> None:
    for name, record in list(content.array_records.items()):
        if rng.random() < 0.5:
            del content[name]
        else:
            content[name] = ArrayRecord({f"{part}?": array for part, array in record.items()})


def _other_records(content: RecordDict, rng: np.random.Generator) -> None:
    action = rng.integers(3)
    if action == 0:
        content["about"] = MetricRecord({"round": 1})
    elif action == 1:
        content["surprise"] = ConfigRecord({"x": 1})
    else:
        content["upload"] = ArrayRecord({})


CHANGES: list[Callable[[RecordDict, np.random.Generator], None]] = [
    _odd_value,
    _odd_value,
    _missing_value,
    _other_json,
    _other_json,
    _cut_text,
    _other_bytes,
    _other_bytes,
    _other_array,
    _other_shape,
    _other_names,
    _other_records,
]


def offer(answers: list[Taken], count: int, seed: int) -> dict[str, int]:
    """So many changed answers, each to the reader of its original; how many were refused."""
    rng, outcome = np.random.default_rng(seed), {"taken": 0, "refused": 0}
    for place in range(count):
        name, take, site, content = answers[place % len(answers)]
        message, begun = changed(content, rng), time.perf_counter()
        try:
            outcome["taken" if take(site, message) is None else "refused"] += 1
        except Refused:
            outcome["refused"] += 1
        except Exception as error:
            pytest.fail(f"message {place} of seed {seed} ({name}): {type(error).__name__}: {error}")
        assert time.perf_counter() - begun < SLOWEST, f"message {place} of seed {seed} ({name})"
    return outcome


def test_the_server_takes_or_refuses_whatever_arrives(recorded) -> None:
    outcome = offer(recorded[0], 2500, seed=0)
    assert outcome["refused"] > 1500


@pytest.mark.full
def test_the_server_takes_or_refuses_100_000_messages(all_recorded) -> None:
    logging.getLogger("polyfed").setLevel(logging.CRITICAL)
    outcome = offer(all_recorded[0], 100_000, seed=1)
    assert sum(outcome.values()) == 100_000
    assert outcome["refused"] > 60_000


def ask(questions: list[tuple[Site, str, RecordDict]], count: int, seed: int) -> int:
    rng, refused = np.random.default_rng(seed), 0
    for place in range(count):
        site, kind, content = questions[place % len(questions)]
        message, begun = changed(content, rng), time.perf_counter()
        reply = site.answer(kind, message)
        why = str(reply.config_records["about"].get("error", ""))
        refused += bool(why)
        assert "it cannot be read (" not in why, f"message {place} of seed {seed}: {why}"  # nothing unforeseen
        assert time.perf_counter() - begun < SLOWEST
    return refused


def test_a_site_answers_or_refuses_whatever_arrives(recorded) -> None:
    assert ask(recorded[1], 600, seed=2) > 300


@pytest.mark.full
def test_a_site_answers_or_refuses_20_000_messages(all_recorded) -> None:
    logging.getLogger("polyfed").setLevel(logging.ERROR)
    assert ask(all_recorded[1], 20_000, seed=3) > 10_000


PLAIN = st.one_of(
    *(st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(max_size=40), st.binary(max_size=40)),
    *(st.lists(st.integers(-9, 9), max_size=3), st.lists(st.floats(), max_size=3), st.lists(st.text(), max_size=3)),
)


@pytest.mark.full
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(about=st.dictionaries(st.sampled_from(["site", "run", "round", "weight", "silent", "good", "code", "x"]), PLAIN))
def test_plain_values_of_any_type_are_read_or_refused(recorded, about) -> None:
    """Hypothesis looks for the smallest answer that does harm."""
    for name, take, site, content in recorded[0][-30:]:
        message = copy.deepcopy(content)
        message.config_records["about"].update(about)
        try:
            take(site, message)
        except Refused:
            continue
        except Exception as error:
            pytest.fail(f"{name}: {type(error).__name__}: {error}")


def test_bytes_that_are_no_message_become_an_error_of_their_sender(recorded) -> None:
    rng = np.random.default_rng(4)
    failures = 0
    for place in range(1500):
        _, _, _, content = recorded[0][place % len(recorded[0])]
        data = bytearray(b"".join(Envelope("train", content).parts()))
        action = rng.integers(4)
        where = int(rng.integers(len(data) if rng.random() < 0.3 else min(len(data), 300)))
        if action == 0:
            data[where] ^= 1 << int(rng.integers(8))
        elif action == 1:
            data[where:] = rng.bytes(10)
        elif action == 2:
            data[where:where] = data[: int(rng.integers(1, 60))]
        else:
            data[where : where + 4] = b"\xff\xff\xff\x7f"
        failures += bool(read_answer("1", bytes(data)).error)
    assert failures > 300
