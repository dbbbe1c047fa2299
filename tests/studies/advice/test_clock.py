"""Work ends within the time, also where its single steps are long."""

from __future__ import annotations

import pytest

from polyfed.studies.advice.clock import Clock, OutOfTime


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


def test_what_must_be_finished_is_timed_all_the_same(now) -> None:
    clock = Clock(100.0, kept=0.0)
    for _ in range(3):
        now[0] += 60
        clock.look(ends=False)
    assert Clock(100.0, 0.0).allows(40.0)
    assert not clock.allows(0.0)
