"""APFL's figures with linear models: claims that can fail, and the quick versions."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.papers.apfl import linear
from polyfed.papers.apfl.methods import ADAPTIVE, ALPHAS
from polyfed.papers.catalogue import get
from polyfed.papers.shared.comparison import Compared
from polyfed.papers.shared.experiment import silent
from tests.papers.apfl.made_up import compared_rows, rows_of


def compared(column: str, personal: float, localized: float) -> Compared:
    accuracy = {f"APFL, α = {alpha:g}": personal - alpha / 100 for alpha in ALPHAS}
    accuracy |= {f"{name}, localized": localized for name in ("FedAvg", "SCAFFOLD")}
    accuracy |= {f"{name}, global": localized - 0.2 for name in ("FedAvg", "SCAFFOLD")}
    losses = {f"APFL, α = {alpha:g}": 1 - alpha for alpha in ALPHAS}
    rising = {label: 1 - loss for label, loss in losses.items()}  # at stepsizes of their own, which do not count
    alike = compared_rows(column + linear.ONE_STEPSIZE, dict.fromkeys(losses, 0.5), losses)
    return Compared(compared_rows(column, accuracy, rising) + alike)


def test_personal_models_must_win_where_clients_differ_and_lose_where_they_do_not() -> None:
    ahead, behind = (0.95, 0.9), (0.9, 0.95)
    for column, pair, expected in (
        ("2 classes a client", ahead, "holds"),
        ("2 classes a client", behind, "does not hold"),
        ("IID", behind, "holds"),
        ("IID", ahead, "does not hold"),
    ):
        claim, *rest = linear._fig2_claims(compared(column, *pair), column)
        assert claim.verdict == expected
        assert "(FedAvg, localized)" in claim.measured
        assert all(other.verdict == "holds" for other in rest)  # the losses fall as alpha grows


def test_a_learned_alpha_must_end_higher() -> None:
    rows = [row for column, share in (("a", 0.7), ("b", 0.2)) for row in rows_of(column, ADAPTIVE, 0.9, share=share)]
    np.testing.assert_allclose(Compared(rows).share("a", ADAPTIVE), [0.7, 0.71, 0.72], atol=2e-4)
    assert linear._alpha_higher(Compared(rows), "a", "b").verdict == "holds"
    assert linear._alpha_higher(Compared(rows), "b", "a").verdict == "does not hold"


def test_fewer_clients_must_cost_localized_fedavg_accuracy() -> None:
    def verdicts(accuracies: tuple[float, float]) -> list[str]:
        rows = []
        for column, value in zip(("30% of the clients", "70% of the clients"), accuracies, strict=True):
            rows += rows_of(column, "APFL, α = 0.5", 0.95, loss=0.05) + rows_of(column, "FedAvg, localized", value)
        return [claim.verdict for claim in linear.judge_fig3(rows)]

    assert verdicts((0.8, 0.9)) == ["holds"] * 5
    assert verdicts((0.97, 0.9)) == ["does not hold", "holds", "holds", "holds", "does not hold"]


def test_adaptive_models_must_be_equally_good_on_all_data() -> None:
    def verdict(last: float) -> str:
        rows = []
        for column, value in (("IID", 0.9), ("synthetic(0, 0)", 0.9), ("synthetic(1, 1)", last)):
            rows += rows_of(column, ADAPTIVE, value) + rows_of(column, "FedAvg, localized", 0.5)
        (claim,) = (claim for claim in linear.judge_fig4(rows) if "almost as accurate" in claim.text)
        return claim.verdict

    assert [verdict(last) for last in (0.905, 0.95)] == ["holds", "does not hold"]


@pytest.mark.full
def test_the_quick_version_on_generated_data_runs() -> None:
    experiment = get("apfl/fig4")
    outcome = experiment.outcome(experiment.run(True, silent))
    assert outcome.measured.rows
    assert outcome.figures
    assert {claim.verdict for claim in outcome.claims} == {"undecided"}  # one seed
