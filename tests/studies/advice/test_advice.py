"""Federations whose answer follows from how they were made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import polyfed as pf
from polyfed.studies.advice.clock import OutOfTime
from polyfed.studies.advice.contenders import BUDGET, contenders
from polyfed.studies.advice.trials import run_trial

DIRECTION = np.array([2.0, -1.5, 1.0, 0.0, 0.5])


def site(rows: int, direction: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, len(direction)))
    return x, (random.random(rows) < 1 / (1 + np.exp(-x @ direction))).astype(int)


def federation(sites: dict[str, tuple[np.ndarray, np.ndarray]]) -> pf.Federation:
    return pf.Federation.from_arrays(sites, validation=0.25, test=0.25, classes=2)


def quick(fed: pf.Federation, **options) -> pf.Advice:
    return pf.advise(fed, minutes=30, splits=5, rounds=20, methods=["global"], models=["linear"], **options)


def test_every_contender_has_the_same_number_of_candidates() -> None:
    assert {len(contender.candidates) for contender in contenders()} == {BUDGET}
    names = {contender.name for contender in contenders()}
    assert {"alone", "global", "apfl", "flix", "scafflix", "fedbc", "plsgd", "ditto"} <= names


@pytest.fixture(scope="module")
def alike() -> pf.Advice:
    return quick(federation({f"s{k}": site(60, DIRECTION, k) for k in range(6)}))


def test_small_sites_that_are_alike_are_told_to_train_together(alike) -> None:
    assert alike.method != "alone"
    assert alike.mean.estimate > 0.02
    assert sum(s.deploy == "alone" for s in alike.sites) <= 1
    assert {s.deploy for s in alike.sites} <= {"global", "alone"}  # FedAvg has no personal model
    assert not any(s.verdict_among_all == "loses" for s in alike.sites)
    losses = {row["method"]: row["validation_loss"] for row in alike.table if row["model"] in ("linear", "")}
    assert losses["global"] < losses["alone"] < losses["constant"]


def test_advice_is_complete_json(alike) -> None:
    words = alike.as_dict()
    assert words["answer"].startswith("Train together with")
    assert set(words["sites"][0]) >= {"client", "deploy", "verdict", "gain", "gain_low", "gain_high"}
    effects = words["influence"]["s0"]
    assert set(effects) == {f"s{k}" for k in range(1, 6)}
    assert words["brings"]["s0"] == pytest.approx(np.mean(list(effects.values())))
    assert words["bits_up"] > 0 < words["bits_down"]
    assert np.mean(alike.influence.brings) > 0  # alike sites bring something to each other


def test_no_gain_is_told_that_no_metric_allows() -> None:
    few = pf.advise(
        federation({f"s{k}": site(12, DIRECTION, k) for k in range(4)}),
        minutes=30, splits=5, rounds=5, methods=["global"], models=["linear"],
    )  # fmt: skip
    assert {(s.gain_low, s.gain_high) for s in few.sites} >= {(-1.0, 1.0)}  # of AUC, by three test rows
    ends = [(s.gain_low, s.gain_high, s.together_low, s.together_high) for s in few.sites]
    assert np.abs(np.array(ends, float)).max() <= 1


@pytest.fixture(scope="module")
def opposite() -> pf.Advice:
    sites = {f"s{k}": site(200, DIRECTION, k) for k in range(5)} | {"opposite": site(200, -DIRECTION, 9)}
    return pf.advise(federation(sites), minutes=30, splits=5, rounds=20, methods=["global", "apfl"], models=["linear"])


@pytest.mark.full
def test_a_site_whose_labels_mean_the_opposite_is_told_to_stay_alone(opposite) -> None:
    told = {s.client: s for s in opposite.sites}
    assert told["opposite"].deploy == "alone"
    assert told["opposite"].verdict == "cannot tell"
    assert abs(told["opposite"].gain) < 0.02
    assert told["opposite"].together_gain < -0.1


@pytest.mark.full
def test_it_does_not_spoil_what_the_others_are_told(opposite) -> None:
    assert opposite.apart == ["opposite"]
    assert "without opposite: " in opposite.sentence
    others = [s for s in opposite.sites if s.client != "opposite"]
    assert all(s.deploy != "alone" and s.verdict != "loses" for s in others)
    fed = federation({f"s{k}": site(200, DIRECTION, k) for k in range(5)})
    gain = np.mean([s.gain for s in quick(fed).sites])  # of the five had there been no sixth
    assert np.mean([s.gain for s in others]) > gain - 0.005
    assert opposite.influence is not None
    assert opposite.influence.clients == ("s0", "s1", "s2", "s3", "s4")


@pytest.mark.full
def test_sites_that_are_all_different_or_of_two_clusters_are_not_harmed() -> None:
    random = np.random.default_rng(3)
    different = {f"s{k}": site(200, 1.5 * random.normal(size=5), k) for k in range(6)}
    clusters = {f"s{k}": site(200, DIRECTION * (1 if k < 3 else -1), k) for k in range(6)}
    for sites in (different, clusters):
        advice = quick(federation(sites))
        assert not any(s.verdict == "loses" for s in advice.sites)
        assert advice.mean.estimate > -0.01
        assert [s.deploy for s in advice.sites].count("alone") >= 5
        assert advice.apart == []


@pytest.mark.full
def test_tiny_sites_beside_a_large_one_are_told_to_train_with_it() -> None:
    sites = {"large": site(1000, DIRECTION, 0)} | {f"s{k}": site(40, DIRECTION, k) for k in range(1, 6)}
    advice = quick(federation(sites))
    tiny = [s for s in advice.sites if s.client != "large"]
    assert all(s.deploy != "alone" for s in tiny)
    assert not any(s.verdict == "loses" for s in advice.sites)
    assert np.mean([s.gain for s in tiny]) > 0


def test_the_advice_is_right_on_rows_that_it_never_saw(alike) -> None:
    """Fresh rows, thousands a site: the advised model against scikit-learn on the site's own rows."""
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(6)})
    problem = pf.Problem(fed, pf.models.linear(), "softmax", l2=1e-3)
    result = pf.simulate(problem, alike.candidate.algorithm, rounds=20, eval_every=20)
    fresh, gains = site(4000, DIRECTION, 99), []
    for client in fed.clients:
        x, y = fed.train.of(fed.index(client))
        own = LogisticRegression().fit(x, y).predict_proba(fresh[0])[:, 1]
        together = result.predict(client, fresh[0])["probability"]
        gains.append(roc_auc_score(fresh[1], together) - roc_auc_score(fresh[1], own))
    assert min(gains) > 0  # all six gain by construction
    assert np.mean(gains) == pytest.approx(alike.mean.estimate, abs=0.05)


@pytest.mark.full
def test_pure_noise_helps_nobody() -> None:
    random = np.random.default_rng(5)
    sites = {f"s{k}": (random.normal(size=(100, 5)), random.integers(0, 2, 100)) for k in range(20)}
    advice = quick(federation(sites))
    assert sum(s.verdict == "gains" for s in advice.sites) <= 2
    assert not any(s.verdict_among_all == "gains" for s in advice.sites)


@pytest.mark.full
def test_finished_parts_are_kept_and_gone_on_with(tmp_path: Path, monkeypatch) -> None:
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(3)})
    options = {"minutes": 30, "splits": 3, "rounds": 3, "methods": ["global"], "models": ["linear"], "folder": tmp_path}
    first = pf.advise(fed, **options)
    assert len(list((tmp_path / "trials").glob("*.safetensors"))) == 2

    def never(*_, **__):
        raise AssertionError("a finished part was run again")

    monkeypatch.setattr("polyfed.studies.advice.advice.run_trial", never)
    again = pf.advise(fed, resume=True, **options)
    assert [vars(s) for s in again.sites] == [vars(s) for s in first.sites]
    (tmp_path / "trials" / "01.safetensors").write_bytes(b"nonsense")
    with pytest.raises(pf.PolyfedError, match=r"01\.safetensors: is damaged"):
        pf.advise(fed, resume=True, **options)


def test_what_the_time_does_not_allow_is_said() -> None:
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(3)})
    advice = pf.advise(fed, minutes=1e-4, splits=3, rounds=2)
    assert len(advice.skipped) == 19  # all but the first of two times ten
    assert "APFL, linear" in advice.skipped
    assert advice.method == "alone"
    assert advice.sentence == "Cannot tell: the time was too short to try any way of training together"


def test_a_part_that_outlasts_the_time_is_ended_and_said(monkeypatch) -> None:
    """The clock leaps once a second part is under way."""
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(3)})

    def out_of_time() -> None:
        raise OutOfTime

    looks = iter([lambda: None, out_of_time, lambda: None])

    def hurried(contender, model, problems, proper, rounds, progress, _):
        return run_trial(contender, model, problems, proper, rounds, progress, next(looks))

    monkeypatch.setattr("polyfed.studies.advice.advice.run_trial", hurried)
    advice = pf.advise(fed, minutes=30, splits=3, rounds=2, methods=["global", "apfl"], models=["linear"])
    assert advice.skipped == ["one global model, linear"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"minutes": 0}, "minutes must be a number above 0, found 0"),
        ({"splits": 2}, "splits must be a whole number, at least 3, found 2"),
        ({"methods": ["aplf"]}, "unknown method 'aplf'; did you mean 'apfl'"),
        ({"models": ["mpl"]}, "unknown model 'mpl'; did you mean 'mlp'"),
        ({"epsilon": -1}, "epsilon must be a number above 0, found -1"),
        ({"client": "site"}, "client and target go with a table"),
    ],
)
def test_a_mistake_is_one_sentence(change, words) -> None:
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(2)})
    with pytest.raises(pf.PolyfedError, match=words):
        pf.advise(fed, **change)
    with pytest.raises(pf.PolyfedError, match="at least two sites"):
        pf.advise(federation({"s": site(60, DIRECTION, 0)}))
    with pytest.raises(pf.PolyfedError, match="a table with client= and target=, found int"):
        pf.advise(3)  # pyright: ignore[reportArgumentType]
