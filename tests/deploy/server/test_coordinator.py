"""Sites that miss rounds, fail, lie or come back; servers that die: the run goes on, and nothing counts twice."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

import polyfed as pf
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.server.progress import read_progress
from tests.deploy.expected import close, in_cohorts, simulated
from tests.deploy.loopback import Loopback

METHOD = {"name": "scaffnew", "lr": 0.08, "p": 0.3, "batch": 4, "trust": "never"}
"""It keeps state, and its participants absorb the new server's broadcast."""


def scripted(monkeypatch: pytest.MonkeyPatch, three: pf.Federation, rounds: list[list[bool]]) -> Any:
    """The simulator's run with exactly these participants."""
    cohorts = [[name for name, here in zip(three.clients, there, strict=True) if here] for there in rounds]
    with in_cohorts(three.clients, cohorts):
        return simulated(three, METHOD, rounds=len(rounds))


def changed(reply: Answer, arrays: dict[str, np.ndarray] | None = None, **about: Any) -> Answer:
    """An answer with other arrays, or other plain values."""
    content = RecordDict(dict(reply.content))
    if arrays is not None:
        content["upload"] = wire.as_record(arrays)
    reply.content.config_records["about"].update(about)
    reply.content["upload"] = content["upload"]
    return reply


def test_rounds_that_a_site_misses_leave_it_and_the_others_consistent(three, loopback, monkeypatch) -> None:
    grid: Loopback = loopback()
    connected = grid.connected

    def of_the_round() -> dict[str, str]:
        grid.absent = {"site-2"} if len(read_progress(grid.run_folder / "progress.jsonl")) == 3 else set()
        return connected()

    grid.connected = of_the_round
    grid.change = lambda site, round, reply: None if site == "site-1" and round in (1, 2) else reply
    grid.serve(METHOD, {"rounds": 6}, minimum=1)
    here = [True, True, True]
    rounds = [here, [True, False, True], [True, False, True], [True, True, False], here, here]
    grid.assert_equal(scripted(monkeypatch, three, rounds))


def test_what_does_not_belong_is_refused_by_name_and_the_run_goes_on(three, loopback, monkeypatch, caplog) -> None:
    grid: Loopback = loopback()
    old: list[Answer] = []

    def lie(site: str, round: int, reply: Answer) -> Answer | None:
        if site != "site-1" or round < 0:
            return reply
        arrays = wire.as_arrays(reply.content.array_records["upload"])
        if round == 0:
            old.append(Answer("", RecordDict(dict(reply.content))))
            return reply
        if round == 1:
            return changed(reply, {name: np.full_like(array, np.nan) for name, array in arrays.items()})
        if round == 2:
            return changed(reply, {name: array[:1] for name, array in arrays.items()})
        if round == 3:
            return changed(reply, fingerprint="of another version")
        if round == 4:
            return old[0]
        if round == 5:
            return changed(reply, site="site-2")
        if round == 6:
            return changed(reply, weight=float("inf"))
        return reply

    grid.change = lie
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve(METHOD, {"rounds": 8}, minimum=2)
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(told) == 6
    assert all(line.startswith("site 'site-1' refused: round ") for line in told)
    for line, word in zip(told, ("not finite", "float64[1", "version", "replayed", "'site-2'", "finite"), strict=True):
        assert word in line
    here, without = [True, True, True], [True, False, True]
    grid.assert_equal(scripted(monkeypatch, three, [here, *[without] * 6, here]))


def test_a_site_that_is_killed_during_its_work_loses_nothing_and_counts_once(three, loopback) -> None:
    grid: Loopback = loopback()
    killed = []

    def kill(site: str, round: int, reply: Answer) -> Answer | None:
        if site == "site-1" and round in (1, 3) and round not in killed:
            killed.append(round)
            grid.restart(site)
            return None
        return reply

    grid.change = kill
    grid.serve(METHOD, deadline=30.0)
    assert killed == [1, 3]
    grid.assert_equal(simulated(three, METHOD))


def test_a_server_that_is_killed_goes_on_from_its_checkpoint(three, loopback) -> None:
    grid: Loopback = loopback()
    deaths = []

    def die(site: str, round: int, reply: Answer) -> Answer | None:
        if site == "site-1" and round in (0, 2, 4) and round not in deaths:
            deaths.append(round)
            raise KeyboardInterrupt
        return reply

    grid.change = die
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            grid.serve(METHOD)
    grid.serve(METHOD)
    grid.assert_equal(simulated(three, METHOD))
    again = grid.serve(METHOD)  # a run that is complete stays as it is
    close(again, simulated(three, METHOD).server)


def test_too_few_uploads_stop_the_run_with_a_sentence_and_it_can_go_on(three, loopback) -> None:
    grid: Loopback = loopback()
    grid.change = lambda site, round, reply: None if round == 2 and site != "site-0" else reply
    with pytest.raises(pf.PolyfedError, match="round 3: 1 of 3 sites answered, at least 2 are needed"):
        grid.serve(METHOD, minimum=2, patience=2)
    grid.change = None
    grid.serve(METHOD, minimum=2)
    grid.assert_equal(simulated(three, METHOD))


def test_sites_that_are_slow_to_take_the_result_are_waited_for_and_one_that_is_off_is_not(three, loopback) -> None:
    """Their work at the end may take longer than a deadline; what came after it was lost, however often they did it."""
    grid: Loopback = loopback()
    asked: list[str] = []
    take = grid.answers
    ready: list[float] = []

    def slow(site: str, round: int, reply: Answer) -> Answer:
        about = reply.content.config_records["about"]
        if "fingerprint" in about and "good" not in about:
            asked.append(site)
            ready.append(time.monotonic() + 0.5)
        grid.absent = {"site-2"} if round == 1 else grid.absent
        return reply

    grid.change = slow
    grid.answers = lambda messages: take(messages) if not ready or time.monotonic() > ready[0] else []
    grid.serve(METHOD, {"rounds": 2}, minimum=2, deadline=0.1, patience=100)
    assert asked == ["site-0", "site-1"]
    assert time.monotonic() < ready[0] + 5
    assert set(json.loads((grid.run_folder / "finished.json").read_text())) == {"site-0", "site-1"}


def test_a_run_with_other_settings_does_not_go_on_from_a_checkpoint(loopback) -> None:
    grid: Loopback = loopback()
    grid.serve({"name": "fedavg"}, {"rounds": 1})
    with pytest.raises(pf.PolyfedError, match="this checkpoint is of another run: seed was 0, now it is 1"):
        grid.serve({"name": "fedavg"}, {"rounds": 2, "seed": 1})
