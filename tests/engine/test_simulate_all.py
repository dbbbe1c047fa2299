"""Several runs in one call: each ends as it would have ended alone, be they one program or not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.checkpoint.checkpoint import latest_of_all, name_of, names
from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import batches
from tests.conftest import SMALL, few, unequal_clients

A = pf.algorithms
FEDAVG = A.FedAvg(lr=0.1, local_steps=3, batch=4)
APFL = A.APFL(lr=0.1, local_steps=3, batch=4)
SCAFFLIX = A.Scafflix(lr=0.1, p=0.4, plm_epochs=2, plm_batch=4)


def table(result: pf.Result) -> np.ndarray:
    return result.history.drop(columns="seconds").to_numpy(float)


def assert_alike(results: list[pf.Result], planned: list[PlannedRun], **options) -> None:
    for result, plan in zip(results, planned, strict=True):
        expected = pf.simulate(plan.problem, plan.algorithm, seed=plan.seed, finetune=plan.finetune, **options)
        np.testing.assert_allclose(table(result), table(expected), rtol=1e-9, atol=1e-11)
        for name in plan.problem.federation.clients:
            for ours, theirs in zip(result.personal(name).values(), expected.personal(name).values(), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-11)
        assert result.simulation.counters == expected.simulation.counters


@pytest.mark.parametrize("method", few([FEDAVG, APFL, SCAFFLIX], FEDAVG), ids=lambda method: method.name)
def test_candidates_and_seeds_end_as_alone(problem: pf.Problem, method: A.FedAvg | A.APFL | A.Scafflix) -> None:
    planned = [PlannedRun(problem, replace(method, lr=lr), seed) for lr in (0.05, 0.2) for seed in (0, 3)]
    assert len(batches([Simulation(problem, plan.algorithm, seed=plan.seed) for plan in planned])) == 1
    options = {"rounds": 5, "eval_every": 2, "participation": 3, "dtype": "float64"}
    assert_alike(simulate_all(planned, **options), planned, **options)


def test_runs_of_other_shapes_go_one_after_another_to_the_same_numbers(problem: pf.Problem) -> None:
    other = pf.Problem(pf.Federation.from_arrays(unequal_clients(1), classes=3), pf.models.linear(), "softmax", l2=0.5)
    planned = [
        PlannedRun(problem, FEDAVG),
        PlannedRun(problem, replace(FEDAVG, local_steps=2)),
        PlannedRun(other, FEDAVG),
        PlannedRun(problem, replace(FEDAVG, lr=0.3), finetune=pf.FineTune(2, 0.1, 4)),
        PlannedRun(problem, A.Local(lr=0.1, local_steps=3, batch=4)),
    ]
    options = {"rounds": 3, "dtype": "float64"}
    assert_alike(simulate_all(planned, **options), planned, **options)


def test_a_run_that_diverges_stops_and_the_others_go_on(problem: pf.Problem) -> None:
    planned = [PlannedRun(problem, replace(FEDAVG, lr=lr)) for lr in (0.1, 1e200, 0.2)]
    with pytest.warns(RuntimeWarning, match="diverged"):
        first, broken, last = simulate_all(planned, rounds=6, dtype="float64")
    assert broken.diverged is not None
    assert broken.simulation.round < 6
    assert first.diverged is last.diverged is None
    assert_alike([first, last], [planned[0], planned[2]], rounds=6, dtype="float64")


def test_every_run_has_a_checkpoint_of_its_own_from_which_it_goes_on(problem: pf.Problem, tmp_path: Path) -> None:
    def planned(resume: bool) -> list[PlannedRun]:
        places = {seed: tmp_path / str(seed) for seed in (0, 1)}
        return [PlannedRun(problem, APFL, s, None, path if resume else None, path) for s, path in places.items()]

    whole = simulate_all([replace(plan, checkpoint=None) for plan in planned(False)], rounds=6, dtype="float64")
    simulate_all(planned(False), rounds=3, dtype="float64")
    resumed = simulate_all(planned(True), rounds=6, dtype="float64")
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(table(one), table(other))


def test_runs_of_a_sweep_go_on_from_the_newest_round_that_all_of_them_have(problem: pf.Problem, tmp_path: Path) -> None:
    """As after a kill between two checkpoints: apart, a run would be another program, with other last bits."""
    folders = [tmp_path / str(seed) for seed in (0, 1)]

    def planned(resume: list[Path | None]) -> list[PlannedRun]:
        return [PlannedRun(problem, APFL, s, None, resume[s], path) for s, path in enumerate(folders)]

    options: dict[str, Any] = {"rounds": 8, "eval_every": 2, "checkpoint_every": 2}
    whole = simulate_all([replace(plan, checkpoint=None) for plan in planned([None, None])], rounds=8, eval_every=2)
    simulate_all(planned([None, None]), **{**options, "rounds": 6})
    assert latest_of_all(folders) == [folder / name_of(6) for folder in folders]
    shutil.rmtree(folders[1] / name_of(6))
    together: list[Path | None] = [folder / name_of(4) for folder in folders]
    assert latest_of_all(folders) == together
    resumed = simulate_all(planned(together), **options)
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(table(one), table(other))
    assert names(folders[0]) == names(folders[1]) == [name_of(8), name_of(6)]
    (folders[0] / name_of(6) / "meta.json").write_text("{}")
    shutil.rmtree(folders[1] / name_of(8))
    assert latest_of_all(folders) == [folders[0] / name_of(8), folders[1] / name_of(6)]  # no round that both have whole
    assert latest_of_all([*folders, tmp_path / "new"]) == [folders[0] / name_of(8), folders[1] / name_of(6), None]


def test_progress_tells_the_place_of_a_run_and_finished_its_result(problem: pf.Problem) -> None:
    planned = [PlannedRun(problem, FEDAVG, seed) for seed in (0, 1, 2)]
    told: list[tuple[int, int]] = []
    ended: list[int] = []

    def progress(place: int, simulation: Simulation, row: dict[str, object] | None) -> None:
        if row is not None:
            told.append((place, simulation.round))

    simulate_all(planned, rounds=2, progress=progress, finished=lambda place, result: ended.append(place))
    assert sorted(told) == [(place, round) for place in range(3) for round in range(3)]
    assert ended == [0, 1, 2]


def test_the_last_round_is_measured_once(problem: pf.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    result = pf.simulate(problem, A.FedAvg(**{k: v for k, v in SMALL.items() if k in ("lr", "batch")}), rounds=2)

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(result.simulation.resident, "measure", refuse)
    assert len(result.evaluate("test")) == len(problem)


def test_states_that_nobody_needs_are_dropped_after_the_call_and_the_histories_stay(problem: pf.Problem) -> None:
    planned = [PlannedRun(problem, A.APFL(lr=0.1, local_steps=2, batch=4), seed=seed) for seed in range(2)]
    seen: dict[int, Any] = {}

    def finished(place: int, result: pf.Result) -> None:
        seen[place] = result.personal(0)

    kept = simulate_all(planned, rounds=2)
    dropped = simulate_all(planned, rounds=2, finished=finished, keep_states=False)
    assert [result.rows[-1]["objective"] for result in dropped] == [result.rows[-1]["objective"] for result in kept]
    for place, result in enumerate(kept):
        jax.tree.map(np.testing.assert_array_equal, seen[place], result.personal(0))
        with pytest.raises(AssertionError, match="dropped"):
            dropped[place].personal(0)
