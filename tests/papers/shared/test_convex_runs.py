"""What the convex figures share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyfed import algorithms, simulate
from polyfed.compress import RandK
from polyfed.papers.shared import convex_runs
from polyfed.papers.shared.convex_runs import ConvexRun, spaced, trace_all
from polyfed.papers.shared.experiment import silent
from polyfed.problem.problem import Problem
from tests.algorithms.logistic import logistic_problem


@pytest.fixture
def problem(monkeypatch: pytest.MonkeyPatch) -> Problem:
    made = logistic_problem()
    monkeypatch.setattr(convex_runs, "problem_of", lambda *_: made)
    convex_runs._curves.clear()
    return made


def test_seven_values_of_k_are_linearly_spaced_from_one_to_the_dimension():
    assert spaced(112) == [1, 20, 38, 56, 75, 94, 112]
    assert spaced(22, 4) == [1, 8, 15, 22]


@pytest.mark.full
def test_runs_that_differ_in_k_alpha_and_seed_end_together_as_they_do_alone(problem: Problem) -> None:
    first = ConvexRun("toy", len(problem), problem.l2, "DIANA", 1.0, 20, 2, every=5)
    todo = [first, replace(first, k=1), replace(first, seed=3), replace(first, alpha=0.5)]
    todo.append(replace(first, method="GD", k=None))
    curves = trace_all(todo, silent)
    assert list(curves) == todo
    assert len({curve[-1]["gap"] for curve in curves.values()}) == len(todo)
    for run, curve in curves.items():
        method = algorithms.FLIX(alpha=run.alpha)
        if run.k is not None:
            method = algorithms.DIANA(alpha=run.alpha, compressor=RandK(run.k))
        alone = simulate(problem, method, rounds=20, seed=run.seed, init="ones", eval_every=5, dtype="float64")
        assert [row["round"] for row in curve] == [0, 5, 10, 15, 20]
        assert [row["gap"] for row in curve] == pytest.approx([row["gap"] for row in alone.rows], rel=1e-9)
        assert curve[-1]["bits"] == alone.rows[-1]["bits_up"] / len(problem)


def test_a_run_that_is_known_is_not_repeated(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ConvexRun("toy", len(problem), problem.l2, "GD", 1.0, 5)
    before = trace_all([run], silent)
    monkeypatch.setattr(convex_runs, "simulate_all", lambda *_, **__: pytest.fail("it ran again"))
    assert trace_all([run], silent) == before
