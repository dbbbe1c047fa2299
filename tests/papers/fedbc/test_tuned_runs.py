"""FedBC's methods are tuned alike, by validation rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyfed.algorithms import FedBC
from polyfed.core.schedules import Decay
from polyfed.papers.fedbc import tuned_runs
from polyfed.papers.fedbc.contenders import DUAL_RATES, GLOBAL, RATES, algorithm_of
from polyfed.papers.fedbc.images import images
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.shakespeare import roles
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.held_out import options
from tests.papers.fedbc.made_up import TASK


def test_every_method_gets_the_same_budget_and_is_chosen_by_validation_rows(monkeypatch) -> None:
    asked = []

    def trace(runs):
        asked.extend((run.label, run.chosen) for run in runs)
        rates = [dict(run.chosen)["lr"] for run in runs]
        rows = [{"round": 4, "global_test_pooled": lr, "global_validation_pooled": -abs(lr - 0.1)} for lr in rates]
        return [Record((row,), np.ones(1), None, {}) for row in rows]

    monkeypatch.setattr(tuned_runs, "trace", trace)
    for label in GLOBAL:
        for budget in (3, 12):
            asked.clear()
            chosen = tuned_runs.choose.__wrapped__(TASK, label, "global", budget)
            assert len(asked) == len(set(asked)) == budget
            rates = [dict(candidate)["lr"] for _, candidate in asked]
            assert dict(chosen)["lr"] == min(rates, key=lambda lr: abs(lr - 0.1))  # not the best on test rows


def test_choices_of_federations_of_other_sizes_are_told_apart_and_ends_of_ranges_are_called_so(monkeypatch) -> None:
    crowd = replace(TASK, data=options(**{**dict(TASK.data), "clients": 9}))
    rates = {TASK: 0.001, crowd: 0.05}
    monkeypatch.setattr(tuned_runs, "choose", lambda task, *_: options(lr=rates[task]))
    monkeypatch.setattr(tuned_runs, "trace", lambda runs: [None] * len(runs))
    label = "FedAvg, uniform"
    _, settings = tuned_runs.collect([TASK, crowd], {label: GLOBAL[label]}, silent, seeds=1)
    first = dict(TASK.data)["clients"]
    assert settings[f"{label}, E = {TASK.epochs}, {first} devices"] == "lr 0.001 (the smallest)"
    assert settings[f"{label}, E = {TASK.epochs}, 9 devices"] == "lr 0.05"
    _, settings = tuned_runs.collect([TASK], {label: GLOBAL[label]}, silent, seeds=1)
    assert f"{label}, E = {TASK.epochs}" in settings


def test_nets_have_the_momentum_of_the_published_code_and_the_lstms_stepsizes_decay() -> None:
    task = images("cifar10", 2, 1.3, 5, quick=False)
    chosen = {label: algorithm_of(task, it, options(lr=0.01)) for label, it in GLOBAL.items()}
    moving = {label for label, method in chosen.items() if getattr(method, "momentum", None) == 0.5}
    assert moving == set(GLOBAL) - {"SCAFFOLD"}
    assert 100 <= task.rounds <= 200
    method = algorithm_of(roles(5, quick=False), GLOBAL["FedBC"], options(lr=2.0, dual_lr=1e-7))
    assert isinstance(method, FedBC)
    assert method.lr == Decay(2.0, 0.99)
    assert (min(RATES), min(DUAL_RATES)) == (0.001, 1e-7)
