"""Estimators with scikit-learn's manners: their own checks, groups, raw tables, pipelines, cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.sklearn import FederatedClassifier, FederatedRegressor


def opposite(rows: int = 120) -> tuple[Any, Any, Any]:
    """Two groups whose labels mean the opposite of each other's: no model of both can tell them apart."""
    random = np.random.default_rng(0)
    x, group = random.normal(size=(rows, 3)), np.array(["a", "b"])[np.arange(rows) % 2]
    return x, np.where((x[:, 0] > 0) == (group == "a"), "yes", "no"), group


def test_every_group_has_its_model_and_strangers_have_the_global_one():
    x, y, group = opposite()
    estimator = FederatedClassifier(pf.algorithms.APFL(lr=0.5, local_steps=20), rounds=30).fit(x, y, groups=group)
    assert estimator.score(x, y, groups=group) > 0.9
    assert estimator.score(x, y) < 0.7
    strangers = estimator.predict_proba(x[:3], groups=["c"] * 3)
    np.testing.assert_array_equal(strangers, estimator.predict_proba(x[:3]))
    np.testing.assert_allclose(strangers.sum(axis=1), 1)
    assert list(estimator.classes_) == ["no", "yes"]


def test_it_is_what_simulate_computes():
    x, y, group = opposite()
    method = pf.algorithms.FedAvg(lr=0.1)
    estimator = FederatedClassifier(method, rounds=5).fit(x, y, groups=group)
    names = ["x0", "x1", "x2"]
    table = pd.DataFrame(x, columns=names).assign(site=group, y=y)
    fed = pf.Federation.from_dataframe(table, client="site", target="y", validation=0, test=0, prepare=True)
    problem = pf.Problem(fed, pf.models.linear(), l2=1e-3)
    result = pf.simulate(problem, method, rounds=5, eval_every=5, dtype="float64")
    expected = result.predict("a", table[names]).probability
    np.testing.assert_allclose(estimator.predict_proba(x)[:, 1], expected, atol=1e-12)


def test_raw_tables_are_prepared_and_columns_found_by_name():
    x, y, group = opposite()
    words = np.where(y == "yes", "up", "down")
    frame = pd.DataFrame({"size": x[:, 0], "way": words})
    frame.loc[3, "size"] = None
    estimator: Any = FederatedClassifier("fedavg", rounds=20).fit(frame, y, groups=group)
    assert estimator.score(frame, y) == 1.0
    assert list(estimator.feature_names_in_) == ["size", "way"]
    assert estimator.predict(pd.DataFrame({"size": [None], "way": ["sideways"]})).shape == (1,)


def test_regression_is_in_the_units_of_the_target():
    x, _, group = opposite()
    y = 1000 + 50 * x[:, 1] + np.where(group == "a", 200.0, 0.0)
    estimator = FederatedRegressor(pf.algorithms.APFL(lr=0.1, local_steps=20), rounds=40).fit(x, y, groups=group)
    assert estimator.score(x, y, groups=group) > 0.95
    assert estimator.score(x, y, groups=group) > estimator.score(x, y) + 0.1


@pytest.mark.full
def test_pipelines_and_cross_validation_work():
    x, y, group = opposite()
    pipeline = make_pipeline(StandardScaler(), FederatedClassifier("fedavg", rounds=3))
    assert pipeline.fit(x, y, federatedclassifier__groups=group).predict(x).shape == (120,)
    folds = cross_val_score(FederatedClassifier("fedavg", rounds=3), x, y, params={"groups": group}, cv=2)
    assert folds.shape == (2,)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator: Any = FederatedClassifier(pf.algorithms.APFL(lr=0.5, local_steps=20), rounds=30)
        routed = estimator.set_fit_request(groups=True).set_score_request(groups=True)
        scores = cross_val_score(routed, x, y, params={"groups": group}, cv=2)
    assert scores.min() > 0.8


def test_mistakes_are_told_in_a_sentence():
    x, y, group = opposite()
    with pytest.raises(PolyfedError, match="groups has 2 entries, expected one for each of 120 rows"):
        FederatedClassifier(rounds=1).fit(x, y, groups=["a", "b"])
    with pytest.raises(PolyfedError, match="unknown model 'lnear'; did you mean 'linear'"):
        FederatedClassifier(model="lnear", rounds=1).fit(x, y)
    with pytest.raises(PolyfedError, match="all rows have the class 'yes'"):
        FederatedClassifier(rounds=1).fit(x, ["yes"] * 120)
    alone = FederatedClassifier("local", rounds=1).fit(x, y, groups=group)
    with pytest.raises(PolyfedError, match="no global model"):
        alone.predict(x)


def _checks() -> list[Any]:
    made = []
    for estimator in (FederatedClassifier(rounds=30), FederatedRegressor("fedavg", rounds=30)):
        generated: Any = estimator_checks_generator(estimator)
        for _, check in generated:
            name = check.func.__name__
            if name != "check_array_api_input":  # which needs a setting of SciPy from the start
                made.append(pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}"))
    return made


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), _checks())
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    check(sklearn.base.clone(estimator))
