"""APFL's figures with linear models: claims that can fail, and the quick versions."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers.apfl import linear
from polyfed.papers.apfl.methods import ADAPTIVE, ALPHAS
from polyfed.papers.catalogue import get
from polyfed.papers.shared.comparison import Comparison
from polyfed.papers.shared.experiment import silent
from polyfed.papers.shared.tuned import Entry
from tests.papers.apfl.made_up import curves, made_up_comparison


def compared(column: str, personal: float, localized: float) -> Comparison:
    accuracy = {f"APFL, α = {alpha:g}": personal - alpha / 100 for alpha in ALPHAS}
    accuracy |= {f"{name}, localized": localized for name in ("FedAvg", "SCAFFOLD")}
    accuracy |= {f"{name}, global": localized - 0.2 for name in ("FedAvg", "SCAFFOLD")}
    return made_up_comparison(column, accuracy, {f"APFL, α = {alpha:g}": 1 - alpha for alpha in ALPHAS})


def test_personal_models_must_win_where_clients_differ_and_lose_where_they_do_not() -> None:
    better, worse = (0.95, 0.9), (0.9, 0.95)
    for column, pair, expected in (
        ("2 classes a client", better, True),
        ("2 classes a client", worse, False),
        ("IID", worse, True),
        ("IID", better, False),
    ):
        claim, *rest = linear._fig2_claims(compared(column, *pair), column)
        assert claim.passed is expected
        assert "FedAvg, localized" in claim.measured
        assert all(other.passed for other in rest)  # the losses fall as alpha grows


def test_a_learned_alpha_must_end_higher_and_is_a_mean_over_clients_and_seeds() -> None:
    table = {(column, ADAPTIVE): curves("personal", 0.9, share=share) for column, share in (("a", 0.7), ("b", 0.2))}
    ends = Comparison({ADAPTIVE: Entry("", (), "personal")}, {}, table)
    np.testing.assert_allclose(ends.share("a", ADAPTIVE), [0.7, 0.7])
    assert linear._alpha_higher(ends, "a", "b").passed
    assert not linear._alpha_higher(ends, "b", "a").passed


@pytest.mark.full
@pytest.mark.parametrize("name", ["apfl/fig1", "apfl/fig4"])
def test_the_quick_versions_on_generated_data_run(name) -> None:
    outcome = get(name).run(True, silent)
    assert outcome.rows
    assert outcome.figures
    passed = {claim.text for claim in outcome.claims if claim.passed}
    if name == "apfl/fig4":  # in so few rounds alpha leaves 0.01 on the most diverse data only
        assert "The learned alpha ends higher with synthetic(1, 1) than with IID." in passed
    else:
        assert "Where clients differ most, APFL's personal models are more accurate than FedAvg, global." in passed
