"""What is trained for a trial, and how little else is done."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import FedAvg
from polyfed.engine.loop import PlannedRun
from polyfed.engine.measure import FineTune
from polyfed.engine.simulate import simulate_all
from polyfed.problem.metrics import metric_named
from polyfed.studies.advice import trials
from polyfed.studies.advice.contenders import Candidate, Contender


@pytest.fixture(scope="module")
def problems() -> list[pf.Problem]:
    random = np.random.default_rng(5)
    sites = {f"s{k}": (random.normal(size=(40, 3)), random.integers(0, 2, 40)) for k in range(3)}
    drawn = pf.Federation.from_arrays(sites, validation=0.25, test=0.25, classes=2)
    return [pf.Problem(drawn.redrawn(split), pf.models.linear(), "softmax", l2=0.01) for split in range(2)]


def test_candidates_that_differ_in_fine_tuning_alone_are_trained_once_and_nothing_is_measured(
    problems, monkeypatch
) -> None:
    calls = []

    def counted(planned, **options):
        calls.append((len(planned), options))
        return simulate_all(planned, **options)

    monkeypatch.setattr(trials, "simulate_all", counted)
    tunes, rates = (FineTune(3, 0.03, 20), FineTune(3, 0.5, 20)), (0.02, 0.3)
    candidates = tuple(Candidate(FedAvg(lr=rate, local_steps=2, batch=10), tune) for rate in rates for tune in tunes)
    proper = metric_named("log_loss", problems[0])
    way = Contender("fine-tuned", "fine-tuned", candidates)
    together = trials.run_trial(way, "linear", problems, proper, 4, lambda _: None)
    assert [count for count, _ in calls] == [2 * 2]  # splits times stepsizes of the training
    assert not calls[0][1]["measure"]
    single = [
        trials.run_trial(dataclasses.replace(way, candidates=(one,)), "linear", problems, proper, 4, lambda _: None)
        for one in candidates
    ]
    assert together is not None
    assert all(one is not None for one in single)
    np.testing.assert_allclose(together.by_candidate, [one.by_candidate[0] for one in single if one], rtol=1e-5)
    assert len(set(np.round(together.by_candidate, 6))) == 4
    for split, number in enumerate(together.chosen):
        for name in ("personal test", "global test", "personal validation"):
            of = single[number]
            assert of is not None
            np.testing.assert_allclose(together.scores[name][split], of.scores[name][split], atol=1e-6)


def test_a_run_that_is_not_measured_ends_with_the_same_model_and_no_history(problems) -> None:
    planned = [PlannedRun(problem, FedAvg(lr=0.1, local_steps=2, batch=10), seed=3) for problem in problems]
    told = []
    plain = simulate_all(planned, rounds=3, eval_every=3)
    bare = simulate_all(planned, rounds=3, measure=False, progress=lambda *given: told.append(given[2]))
    for one, other in zip(plain, bare, strict=True):
        assert (len(one.rows), other.rows, other.diverged, other.interrupted) == (2, [], None, False)
        for ours, theirs in zip(one.global_params.values(), other.global_params.values(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert told
    assert set(told) == {None}
