"""APFL's Fig. 1: columns from IID data to one class a client, and claims that can fail."""

from __future__ import annotations

from polyfed.papers.apfl import diversity
from polyfed.papers.apfl.methods import ADAPTIVE
from tests.papers.apfl.made_up import rows_of


def rows(alike: dict[str, float], apart: dict[str, float]) -> list[dict]:
    """Accuracies on IID data and with one class a client; a loss is what is missing to 1."""
    return [
        row
        for column, accuracies in ((diversity.IID, alike), (diversity.column_of(1), apart))
        for label, value in accuracies.items()
        for row in rows_of(column, label, value, 1 - value)
    ]


def verdicts(personal: tuple[float, float], shared: tuple[float, float]) -> list[str]:
    made = [{ADAPTIVE: p} | dict.fromkeys(diversity.GLOBALS, s) for p, s in zip(personal, shared, strict=True)]
    return [claim.verdict for claim in diversity.judge(rows(*made))]


def test_personal_models_must_lead_where_clients_differ_and_global_ones_get_worse() -> None:
    assert verdicts((0.5, 0.8), (0.6, 0.3)) == ["holds"] * 10


def test_a_lead_that_shrinks_and_global_models_that_get_better_are_refused() -> None:
    expected = ["holds", "does not hold"] * 2 + ["does not hold"] * 6
    assert verdicts((0.8, 0.7), (0.3, 0.5)) == expected


def test_a_column_says_how_images_are_shared_out() -> None:
    assert dict(diversity.partition_of("IID")) == {"partition": "iid"}
    assert dict(diversity.partition_of("1 class a client")) == {"partition": "classes_per_client", "k": 1}
