"""`pf.gains`: runs compared from Python, on the same test rows."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed.problem.metrics import METRICS
from polyfed.studies.gains import evidence as gain_evidence
from polyfed.studies.same_rows import same_rows
from polyfed.studies.scoring import client_scores
from polyfed.studies.verdicts import over_evidence
from tests.conftest import unequal_clients

A = pf.algorithms


@pytest.fixture(scope="module")
def federation() -> pf.Federation:
    return pf.Federation.from_arrays(unequal_clients(), classes=3)


def trained(federation: pf.Federation, method: A.Algorithm, seed: int = 0) -> pf.Result:
    problem = pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01)
    return pf.simulate(problem, method, rounds=4, eval_every=4, seed=seed)


def test_a_gain_is_the_difference_of_what_clients_deploy(federation) -> None:
    together, alone = trained(federation, A.FedAvg(batch=4)), trained(federation, A.Local(batch=4))
    found = pf.gains(together, alone)
    accuracies = [result.evaluate("test")["personal_accuracy"].to_numpy() for result in (together, alone)]
    np.testing.assert_allclose(found["gain"], accuracies[0] - accuracies[1], atol=1e-6)
    assert list(found["client"]) == list(federation.clients)
    assert set(found["verdict"]) <= {"gains", "loses", "cannot tell"}
    loss = pf.gains(together, alone, metric="log_loss")
    losses = [result.evaluate("test")["personal_loss"].to_numpy() for result in (together, alone)]
    np.testing.assert_allclose(loss["gain"], losses[1] - losses[0], atol=1e-5)


def test_models_that_were_trained_with_class_weights_are_compared_too(federation) -> None:
    problem = pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01, class_weight="balanced")
    together, alone = (
        pf.simulate(problem, method, rounds=2, eval_every=2) for method in (A.FedAvg(batch=4), A.Local(batch=4))
    )
    accuracies = [result.evaluate("test", metrics="accuracy")["personal_accuracy"] for result in (together, alone)]
    np.testing.assert_allclose(pf.gains(together, alone)["gain"], accuracies[0] - accuracies[1], atol=1e-12)


def test_splits_are_averaged_and_paired_in_their_order(federation) -> None:
    splits = [federation.redrawn(number) for number in range(2)]
    together = [trained(split, A.FedAvg(batch=4), seed) for seed, split in enumerate(splits)]
    alone = [trained(split, A.Local(batch=4), seed) for seed, split in enumerate(splits)]
    found = pf.gains(together, alone, metric="brier")
    apart = [pf.gains(one, other, metric="brier")["gain"] for one, other in zip(together, alone, strict=True)]
    np.testing.assert_allclose(found["gain"], np.mean(apart, axis=0), atol=1e-12)
    with pytest.raises(pf.PolyfedError, match="two results are of different rows"):
        pf.gains(together, alone[::-1])
    with pytest.raises(pf.PolyfedError, match="found 1 results over 2"):
        pf.gains(together[:1], alone)


@pytest.mark.full
def test_rows_are_followed_through_redrawn_splits(federation) -> None:
    """The interval is that of rows with known numbers; features that change with the split hide which rows they are."""
    splits = [federation.redrawn(number) for number in range(4)]
    results = [
        [trained(split, method(batch=4), seed) for seed, split in enumerate(splits)] for method in (A.FedAvg, A.Local)
    ]
    found = pf.gains(*results, metric="accuracy")
    client = int(np.argmax(federation.test.sizes))
    numbers = same_rows(splits, client)
    assert numbers is not None
    evidence = []
    for rows, *pair in zip(numbers, *results, strict=True):
        scored = [dict(client_scores(result.simulation, "test"))[client] for result in pair]
        ours, theirs = (one.scores["personal"] for one in scored)
        evidence.append(gain_evidence(METRICS["accuracy"], ours, theirs, scored[0].labels, rows))
    outside = federation.train.sizes[client] + federation.validation.sizes[client]
    interval = over_evidence(evidence, outside)
    assert found.loc[client, ["gain_low", "gain_high"]].tolist() == pytest.approx([interval.low, interval.high])
    hidden = over_evidence([split.without_rows() for split in evidence], outside)
    assert interval.high - interval.low != pytest.approx(hidden.high - hidden.low, rel=1e-3)
