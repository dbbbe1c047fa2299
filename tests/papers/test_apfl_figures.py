"""APFL's experiments: the quick versions, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers import apfl, apfl_nets, base, held_out
from polyfed.papers.held_out import Curve


def curves(**ends: float) -> list[Curve]:
    """Two seeds that end in these values."""
    return [
        Curve(({"round": 0, **ends}, {"round": 5, **{k: v + d for k, v in ends.items()}}), np.array([0.4, 0.6]))
        for d in (0.0, 0.01)
    ]


def found(column: str, personal: float, localized: float) -> apfl.Found:
    methods: apfl.Found = {
        (column, f"APFL, α = {alpha:g}"): curves(
            personal_test_accuracy=personal - alpha / 100, personal_train_loss=1 - alpha
        )
        for alpha in apfl.ALPHAS
    }
    for name in ("FedAvg", "SCAFFOLD"):
        methods[column, name] = curves(finetuned_test_accuracy=localized, global_test_accuracy=localized - 0.2)
    return methods


def test_personal_models_must_win_where_clients_differ_and_lose_where_they_do_not() -> None:
    better, worse = (0.95, 0.9), (0.9, 0.95)
    for column, pair, expected in (
        ("2 classes a client", better, True),
        ("2 classes a client", worse, False),
        ("IID", worse, True),
        ("IID", better, False),
    ):
        claim = apfl._fig2_claims(found(column, *pair), column)[0]
        assert claim.passed is expected
        assert "FedAvg localized" in claim.measured


def test_the_table_is_judged_in_its_order() -> None:
    values = {label: 0.99 - place / 100 for place, label in enumerate(apfl_nets.TABLE)}
    values["perFedAvg"], values["FedAvg, localized"] = 0.97, 0.96
    values["pFedMe"], values["FedAvg, global"] = 0.95, 0.9
    table = {
        label: curves(**{apfl_nets._columns(label)[1]: value, apfl_nets._columns(label)[0]: 0.1})
        for label, value in values.items()
    }
    *order, accurate = apfl_nets._table_claims(table)
    assert all(claim.passed for claim in order)
    assert not accurate.passed  # 96.5% in the mean of two seeds
    table["pFedMe"] = curves(personal_test_accuracy=0.5, personal_train_loss=0.1)
    assert [claim.passed for claim in apfl_nets._table_claims(table)[:-1]] == [True, True, True, False]


def test_a_column_is_averaged_over_seeds() -> None:
    rounds, mean = held_out.mean_curve(curves(loss=1.0), "loss")
    np.testing.assert_allclose(rounds, [0, 5])
    np.testing.assert_allclose(mean, [1.0, 1.005])
    assert held_out.spread(np.array([0.97, 0.99]), percent=True) == "98.00 ± 1.41%"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["apfl/fig1", "apfl/fig4"])
def test_the_quick_versions_on_generated_data_run(name) -> None:
    outcome = base.get(name).run(True, base.silent)
    assert outcome.rows
    assert outcome.figures
    higher = next(claim for claim in outcome.claims if "higher where" in claim.text or "larger where" in claim.text)
    assert higher.passed
