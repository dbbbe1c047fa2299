"""Work ends within the time, also where its single steps are long."""

from __future__ import annotations

from typing import Any

import pytest

from polyfed.studies.advice.clock import Clock, OutOfTime
from polyfed.studies.advice.influence import influence


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """A clock that stands still: [seconds]."""
    seconds = [0.0]
    monkeypatch.setattr("polyfed.studies.advice.clock.time.monotonic", lambda: seconds[0])
    return seconds


@pytest.mark.parametrize("step", [1.0, 12.0, 40.0])
def test_work_in_steps_ends_within_the_time(now, step) -> None:
    def work() -> None:
        while True:
            now[0] += step
            clock.look()

    clock = Clock(100.0, kept=0.15)
    with pytest.raises(OutOfTime):
        work()
    assert min(85, 100 - step) < now[0] <= 100
    now[0] -= step
    clock.afterwards()
    with pytest.raises(OutOfTime):
        work()
    assert 100 - step < now[0] <= 100


def test_the_time_begins_before_the_table_is_read(now) -> None:
    now[0] = 90.0
    clock = Clock(100.0, kept=0.15, begun=0.0)
    assert not clock.allows(0.0)
    clock.afterwards()
    assert clock.allows(9.0)
    assert not clock.allows(11.0)
    assert clock.spent == 90


def test_a_part_begins_where_its_first_step_would_be_done(now) -> None:
    """After a part that took 50 seconds, one step of it 30, another is begun, and goes on while its steps are short."""
    clock = Clock(100.0, kept=0.15)
    for step in (30.0, 10.0, 10.0):
        now[0] += step
        clock.look(ends=False)
    assert clock.begins()
    now[0] += 12.0
    clock.look()
    assert now[0] == 62
    assert not clock.begins()
    now[0] += 20.0
    with pytest.raises(OutOfTime):
        clock.look()


def test_what_must_be_finished_is_not_ended(now) -> None:
    clock = Clock(100.0, kept=0.15)
    for _ in range(3):
        now[0] += 60
        clock.look(ends=False)
    assert not clock.begins()


def test_leaving_sites_out_begins_only_where_there_is_time_for_a_step(now) -> None:
    clock = Clock(100.0, kept=0.0)
    now[0] = 30.0
    clock.look()
    now[0] = 41.0
    nothing: Any = None  # what is not looked at
    assert influence([nothing], nothing, nothing, 5, clock) is None
