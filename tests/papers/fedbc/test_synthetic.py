"""What figures show of the rounds on synthetic data, and claims that can fail."""

from __future__ import annotations

import numpy as np

from polyfed.papers.fedbc import rounds, weights
from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.paper import RIVALS
from polyfed.papers.fedbc.synthetic import gap, smooth
from tests.papers.fedbc.made_up import global_rows


def test_gaps_are_means_over_the_last_half_of_the_rounds() -> None:
    rows = [
        {"method": "FedBC", "seed": 0, "round": r, "largest_weight": 0.1 * r, "smallest_weight": 0.5}
        for r in (1, 2, 3, 4)
    ]
    np.testing.assert_allclose(gap(rows, "weight", method="FedBC"), [(0.2 + 0.1) / 2])
    np.testing.assert_allclose(smooth(np.array([1.0, 3.0, 5.0]), window=2), [1, 2, 4])


def test_the_gap_of_participants_must_be_smaller_with_fedbc() -> None:
    rows = [
        {"method": label, "seed": seed, "round": r, "smallest_accuracy": 0.5}
        | {"largest_accuracy": 0.5 + size + 0.001 * seed + 0.0001 * r * place}
        for place, (label, size) in enumerate((dict.fromkeys(GLOBAL, 0.3) | {"FedBC": 0.2, "SCAFFOLD": 0.1}).items())
        for seed in range(3)
        for r in range(1, 5)
    ]
    verdicts = [claim.verdict for claim in rounds.judge_extremes(rows)]
    assert verdicts == ["holds", "holds", "does not hold", "holds", "holds"]
    assert RIVALS[2] == "SCAFFOLD"


def test_weights_must_differ_less_than_data_sizes() -> None:
    def rows(weight: float) -> list[dict]:
        return [
            {"method": "FedBC", "E": 1, "seed": seed, "round": r, "smallest_weight": 0.1, "smallest_data": 0.1}
            | {"largest_weight": 0.1 + weight + 0.001 * seed, "largest_data": 0.4}
            for seed in range(3)
            for r in range(1, 5)
        ]

    assert [weights.weight_claim(rows(weight), 1).verdict for weight in (0.2, 0.5)] == ["holds", "does not hold"]


def test_with_100_devices_fedbc_need_only_be_about_as_good_as_scaffold() -> None:
    def verdicts(**accuracies: float) -> dict[str, str]:
        rows = [row for n in (30, 100) for row in global_rows({"E": 5, "clients": n}, **accuracies)]
        return {claim.text: claim.verdict for claim in rounds.judge_fig7(rows)}

    level = verdicts(ours=0.8, scaffold=0.805)
    assert level["100 devices: FedBC's global model is about as accurate as SCAFFOLD's (within 2 points)."] == "holds"
    assert level["30 devices: FedBC's global model is more accurate than all of the paper's others."] == "does not hold"
    ahead = verdicts(ours=0.8)
    assert ahead["30 devices: FedBC's global model is more accurate than all of the paper's others."] == "holds"
    similar = "100 devices: FedBC's global model is about as accurate as SCAFFOLD's (within 2 points)."
    assert ahead[similar] == "does not hold"
    others = "100 devices: SCAFFOLD's global model is more accurate than the paper's others without FedBC."
    assert (level[others], ahead[others]) == ("holds", "undecided")


def test_losses_must_be_below_those_of_all_baselines() -> None:
    for ours, verdict in ((0.8, "holds"), (0.55, "does not hold")):
        best, uniform = weights.loss_claims(global_rows(ours=ours, scaffold=0.6))
        assert best.verdict == verdict
        assert uniform.verdict == "holds"
