"""A reproduction that is stopped goes on from the runs that ended, and shows no part of one that did not."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from polyfed import papers
from polyfed.cli import main as cli
from polyfed.core.errors import PolyfedError
from polyfed.engine.simulate import simulate_all
from polyfed.papers.fedbc import runs as fedbc_runs
from polyfed.papers.fedbc.contenders import FedbcTask
from polyfed.papers.shared import held_out, run_cache, style, tuned
from polyfed.papers.shared.claims import exact
from polyfed.papers.shared.held_out import HeldOutRun, options
from polyfed.papers.shared.rows import ends
from polyfed.studies.planning import plan

RUN = HeldOutRun("digits", options(clients=4), "linear", 0.0, "apfl", options(lr=0.1, local_steps=2), 3, 0)
SEEDS = (0, 1, 2)


@pytest.fixture
def forget():
    """Runs as in a new process: a function that empties the memory."""

    def empty() -> None:
        for cache in (held_out._curves, fedbc_runs._records, tuned._scores_of_runs):
            cache.clear()

    empty()
    yield empty
    empty()


@pytest.fixture
def three(monkeypatch, forget, no_experiments) -> list[HeldOutRun]:
    """An experiment of three runs, and the runs that were computed for it."""
    computed: list[HeldOutRun] = []

    def counted(runs: Sequence[HeldOutRun]) -> None:
        computed.extend(runs)
        real(runs)

    real = held_out._trace
    monkeypatch.setattr(held_out, "_trace", counted)

    def judge(rows: list[dict]) -> list[papers.Claim]:
        return [exact("Shares are as they were.", repr(ends(rows, "share").tolist()), True)]

    def draw(rows: list[dict]) -> Figure:
        panel = style.Panel("three", [style.Curve("own", np.arange(3), ends(rows, "share"), "#000000")], "share")
        return style.small_multiples([[panel]], x_label="seed", log_y=False)

    @papers.experiment(
        "three/fig1",
        paper="A paper",
        title="Three runs",
        caption="Three",
        data="Digits",
        differences="All of it",
        judge=judge,
        draw=draw,
    )
    def run(quick: bool, progress: papers.ExperimentProgress) -> papers.Measured:
        runs = [replace(RUN, seed=seed, rounds=3 + seed) for seed in SEEDS]  # of three shapes
        curves = held_out.trace_all(runs, progress)
        shares = {run.seed: float(np.mean(np.asarray(curve.own_share))) for run, curve in curves.items()}
        return papers.Measured(
            [{"seed": r.seed, "share": shares[r.seed], **row} for r, curve in curves.items() for row in curve.rows]
        )

    return computed


def stop_at(count: int):
    def progress(what: str, done: int, total: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


def stopped_after(work: Callable[[], Any], folder: Path) -> Any:
    """What some work gives, before Ctrl-C ends the reproduction that it is a part of."""
    outcomes = []

    def stopped() -> None:
        with run_cache.resumable(folder / "unfinished"):
            outcomes.append(work())
            raise KeyboardInterrupt

    with pytest.raises(run_cache.Stopped):
        stopped()
    return outcomes[0]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.full
def test_a_stopped_reproduction_goes_on_to_the_same_bytes(three, forget, tmp_path: Path) -> None:
    papers.reproduce("three", tmp_path / "whole")
    assert [run.seed for run in three] == [0, 1, 2]
    forget()
    three.clear()
    with pytest.raises(run_cache.Stopped, match="--resume goes on from there") as stop:
        papers.reproduce("three/fig1", tmp_path / "cut", progress=stop_at(2))
    assert stop.value.folder == tmp_path / "cut/three/fig1"
    assert [run.seed for run in three] == [0, 1]
    forget()
    papers.reproduce("three/fig1", tmp_path / "cut", resume=True)
    assert [run.seed for run in three] == [0, 1, 2]
    assert contents(tmp_path / "cut/three/fig1") == contents(tmp_path / "whole/three/fig1")  # and nothing unfinished


@pytest.mark.full
def test_what_was_stopped_is_not_lost_by_mistake(three, forget, tmp_path: Path) -> None:
    with pytest.raises(run_cache.Stopped):
        papers.reproduce("three/fig1", tmp_path, progress=stop_at(1))
    with pytest.raises(PolyfedError, match="was stopped here; use --resume, --overwrite or another --out"):
        papers.reproduce("three/fig1", tmp_path)
    assert (tmp_path / "three/fig1/unfinished/runs.jsonl").exists()
    papers.reproduce("three/fig1", tmp_path, quick=True)  # a quick one is another
    assert (tmp_path / "three/fig1/unfinished/runs.jsonl").exists()
    forget()
    three.clear()
    papers.reproduce("three/fig1", tmp_path, overwrite=True)
    assert [run.seed for run in three] == [0, 1, 2]
    assert not (tmp_path / "three/fig1/unfinished").exists()


@pytest.mark.full
def test_the_command_says_how_to_go_on(three, forget, tmp_path: Path, monkeypatch, capsys) -> None:
    def polyfed(*words: str) -> tuple[Any, str]:
        forget()
        monkeypatch.setattr(sys, "argv", ["polyfed", "reproduce", "three/fig1", "--out", str(tmp_path), *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        told = capsys.readouterr()
        return end.value.code, " ".join(f"{told.out} {told.err}".split())

    def cut(runs: Sequence[HeldOutRun]) -> None:
        if runs[0].seed < 2:
            real(runs)
        else:
            signal.raise_signal(signal.SIGINT)

    real = held_out._trace
    with monkeypatch.context() as patched:
        patched.setattr(held_out, "_trace", cut)
        code, message = polyfed()
    assert code == 130
    assert message.endswith("fig1: stopped; runs that ended are kept, and --resume goes on from there")
    assert polyfed()[0] == 2
    three.clear()
    code, told = polyfed("--resume")
    assert (code, [run.seed for run in three]) == (0, [2])
    assert "holds: Shares are as they were." in told


@pytest.mark.full
def test_runs_in_memory_are_kept_as_well(three, forget, tmp_path: Path) -> None:
    papers.reproduce("three/fig1", tmp_path / "first")
    with pytest.raises(run_cache.Stopped):
        papers.reproduce("three/fig1", tmp_path / "second", progress=stop_at(3))
    forget()
    three.clear()
    papers.reproduce("three/fig1", tmp_path / "second", resume=True)
    assert three == []


@pytest.mark.full
def test_runs_of_other_code_and_a_line_that_was_cut_are_run_again(three, forget, tmp_path, monkeypatch) -> None:
    def stopped() -> Path:
        forget()
        with pytest.raises(run_cache.Stopped):
            papers.reproduce("three/fig1", tmp_path, progress=stop_at(2), overwrite=True)
        forget()
        three.clear()
        return tmp_path / "three/fig1/unfinished/runs.jsonl"

    path = stopped()
    path.write_bytes(path.read_bytes()[:-20])
    papers.reproduce("three/fig1", tmp_path, resume=True)
    assert [run.seed for run in three] == [1, 2]
    stopped()
    monkeypatch.setattr(run_cache, "_code", lambda: "other")
    papers.reproduce("three/fig1", tmp_path, resume=True)
    assert [run.seed for run in three] == [0, 1, 2]


def test_what_is_kept_comes_back_as_it_was() -> None:
    given = {"a": np.array([0.1, np.nan], np.float32), "b": [1, 2.5, None, "x"], "c": np.float64(0.1), "d": {"e": ()}}
    back: Any = run_cache._decoded(run_cache._encoded(given))
    np.testing.assert_array_equal(back["a"], given["a"])
    assert back["a"].dtype == np.float32
    assert (back["b"], back["c"], back["d"]) == ([1, 2.5, None, "x"], 0.1, {"e": []})


@pytest.mark.full
def test_records_of_fedbc_come_back_from_disk(forget, tmp_path: Path, monkeypatch) -> None:
    task = FedbcTask("synthetic", options(clients=6), "linear", 1, rounds=4, cohort=3)
    runs = [fedbc_runs.ContenderRun(task, "FedBC", "global", options(lr=0.05, dual_lr=0.01), seed) for seed in (0, 1)]
    before = stopped_after(lambda: fedbc_runs.trace(runs), tmp_path)
    forget()
    monkeypatch.delattr(fedbc_runs, "_together")
    with run_cache.resumable(tmp_path / "unfinished", resume=True):
        for old, new in zip(before, fedbc_runs.trace(runs), strict=True):
            assert (old.rows, set(old.multipliers)) == (new.rows, set(new.multipliers))
            assert all(np.array_equal(old.multipliers[round], new.multipliers[round]) for round in old.multipliers)
            assert old.sizes.dtype == new.sizes.dtype
            np.testing.assert_array_equal(old.weights, new.weights)


@pytest.mark.full
def test_tuning_goes_on_too(forget, tmp_path: Path, monkeypatch) -> None:
    setting = tuned.Setting("digits", options(clients=4), "linear", 0.0, 2, steps=1, batch=10, rates=(0.1, 0.2))
    space = options(lr=(0.01, 0.1))
    entries = {
        "FedAvg": tuned.Entry("fedavg", options(lr=0.1, local_steps=2), "global", space),
        "tuned": tuned.Entry("fedavg", options(lr=0.1, local_steps=2), "finetuned", space),
    }

    def choose():
        return tuned.choose(setting, entries, 2, lambda *_: None)

    before = stopped_after(choose, tmp_path)
    forget()
    monkeypatch.delattr(tuned, "PlannedRun")
    monkeypatch.delitem(inspect.unwrap(tuned.tune).__globals__, "simulate_all")
    with run_cache.resumable(tmp_path / "unfinished", resume=True):
        assert choose() == before
    assert not (tmp_path / "unfinished").exists()


@pytest.mark.parametrize(
    "trace",
    [
        lambda: held_out.trace_all([RUN], lambda *_: None),
        lambda: plan.simulate_whole(run_problem(), method(), rounds=9),
    ],
)
def test_half_a_run_is_no_run(trace, forget, monkeypatch) -> None:
    """Ctrl-C in the middle of a run ends it early; nobody may take what there is for the whole."""

    def pressed(*arguments: Any, **given: Any) -> Any:
        rounds = given["rounds"]

        def press(place: int, simulation: Any, row: Any) -> None:
            if simulation.round < rounds:
                signal.raise_signal(signal.SIGINT)

        return simulate_all(*arguments, **given | {"progress": press})

    monkeypatch.setitem(simulate_all.__globals__, "simulate_all", pressed)
    with pytest.raises(KeyboardInterrupt):
        trace()
    assert held_out._curves.get(RUN) is None


def run_problem() -> Any:
    return held_out.problem_of(RUN.source, RUN.data, RUN.seed, RUN.model, RUN.l2)


def method() -> Any:
    return tuned._algorithm(tuned.Entry("fedavg", options(lr=0.1), "global"))
