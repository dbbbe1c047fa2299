"""An advice keeps the models that it tells its sites to deploy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.problem.metrics import default_metric
from polyfed.studies.advice.answer import Advice, SiteAdvice
from polyfed.studies.advice.contenders import Candidate
from polyfed.studies.advice.models import write_advised_models
from polyfed.studies.advice.settings import AdviceSettings
from polyfed.studies.verdicts import Interval

ROUNDS = 3
ALONE = pf.algorithms.Local(lr=0.2, local_steps=4, batch=8)
APFL = pf.algorithms.APFL(lr=0.2, local_steps=4, batch=8)
FEDAVG = pf.algorithms.FedAvg(lr=0.2, local_steps=4, batch=8)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"ward": np.repeat(["north", "south", "west"], 40), "age": random.normal(60, 9, 120)})
    frame["kind"] = random.choice(["day", "night"], 120)
    frame["died"] = np.where(frame["age"] + 9 * random.normal(size=120) > 60, "yes", "no")
    return frame


@pytest.fixture(scope="module")
def wards(table: pd.DataFrame) -> pf.Federation:
    return pf.Federation.from_dataframe(
        table, client="ward", target="died", validation=0.2, test=0.2, seed=0, prepare=True
    )


def advice_of(wards: pf.Federation, method: str, candidate: Candidate, told: list[Any], apart: list[str]) -> Advice:
    """As `advise` would have it, without its search."""
    metric = default_metric(pf.Problem(wards, pf.models.linear(), "softmax"))
    unknown: tuple[float, None, None] = (0.0, None, None)
    sites = [
        SiteAdvice(name, 40, 8, deploy, "cannot tell", *unknown, "cannot tell", None, 0.5, 0.5, "cannot tell", *unknown)
        for name, deploy in zip(wards.clients, told, strict=True)
    ]
    mean = Interval(0.0, -1.0, 1.0, 3)
    settings = AdviceSettings(rounds=ROUNDS)
    return Advice(
        method, method, "linear", candidate, Candidate(ALONE), metric, sites, mean, [], [], [], ROUNDS, 0, 0, 0.0, 0.0,
        settings, apart=apart,
    )  # fmt: skip


def simulated(wards: pf.Federation, method: pf.algorithms.Algorithm) -> pf.Result:
    problem = pf.Problem(wards, pf.models.linear(), "softmax", l2=AdviceSettings.l2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pf.simulate(problem, method, rounds=ROUNDS, eval_every=ROUNDS)


def assert_same(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


def test_each_site_finds_the_model_that_it_is_told_to_deploy(wards, table, tmp_path: Path) -> None:
    advice = advice_of(wards, "apfl", Candidate(APFL), ["alone", "global", "personal"], [])
    write_advised_models(advice, wards, tmp_path)
    models, together = pf.load(tmp_path), simulated(wards, APFL)
    assert_same(models.personal("north"), simulated(wards, ALONE).personal("north"))
    assert_same(models.personal("south"), together.global_params)
    assert_same(models.personal("west"), together.personal("west"))
    scored = models.predict("west", table.drop(columns="died"))
    expected = together.predict("west", table)
    np.testing.assert_allclose(scored["probability"], expected["probability"], atol=1e-6)


def test_a_site_apart_has_no_part_in_the_others_model(wards, table, tmp_path: Path) -> None:
    tune = pf.FineTune(steps=2, lr=0.1, batch=8)
    advice = advice_of(wards, "fine-tuned", Candidate(FEDAVG, tune), ["personal", "alone", "personal"], ["south"])
    write_advised_models(advice, wards, tmp_path)
    models, together = pf.load(tmp_path), simulated(wards.select([0, 2]), FEDAVG)
    assert_same(models.global_params, together.global_params)
    assert_same(models.personal("south"), simulated(wards, ALONE).personal("south"))
    tuned = together.predict("west", table, finetune=tune)
    np.testing.assert_allclose(models.predict("west", table)["probability"], tuned["probability"], atol=1e-6)


def test_where_all_stay_alone_nobody_has_a_global_model(wards, table, tmp_path: Path) -> None:
    write_advised_models(advice_of(wards, "alone", Candidate(ALONE), ["personal"] * 3, []), wards, tmp_path)
    models = pf.load(tmp_path)
    assert_same(models.personal("south"), simulated(wards, ALONE).personal("south"))
    with pytest.raises(pf.PolyfedError, match="has no global model"):
        models.predict(None, table)
