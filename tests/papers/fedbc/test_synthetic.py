"""What figures show of the rounds on synthetic data, and claims that can fail."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed import data
from polyfed.data.federation import Federation
from polyfed.data.sources.synthetic import client_law
from polyfed.papers.fedbc import rounds, weights
from polyfed.papers.fedbc.contenders import GLOBAL
from polyfed.papers.fedbc.fresh import FRESH, fresh_rows
from polyfed.papers.fedbc.paper import RIVALS
from polyfed.papers.fedbc.runs import Record
from polyfed.papers.fedbc.synthetic import block_rows, gap
from polyfed.papers.shared.held_out import options
from tests.papers.fedbc.made_up import TASK, global_rows


def record(smallest: list[float], largest: list[float]) -> Record:
    pairs = zip(smallest, largest, strict=True)
    rows = [
        {"round": n, "smallest_weight": small, "largest_weight": large} for n, (small, large) in enumerate(pairs, 1)
    ]
    return Record(tuple(rows), np.ones(1), None, {})


def test_gaps_are_means_of_rounds_and_not_gaps_between_means() -> None:
    even = record([0.5] * 20, [0.5] * 10 + [0.6, 0.2] * 5)
    rows = block_rows({(TASK, "FedBC"): [even, record([0.0] * 20, [0.1] * 20)]}, ["weight"])
    assert [row["round"] for row in rows] == [10, 20, 10, 20]
    assert rows[1]["largest_weight"] == pytest.approx(0.4)
    np.testing.assert_allclose(gap(rows, "weight", method="FedBC"), [(0.1 + 0.3) / 2, 0.1])


def test_the_gap_of_participants_must_be_smaller_with_fedbc() -> None:
    rows = [
        {"method": label, "seed": seed, "round": r, "gap_accuracy": size + 0.001 * seed + 0.0001 * r * place}
        for place, (label, size) in enumerate((dict.fromkeys(GLOBAL, 0.3) | {"FedBC": 0.2, "SCAFFOLD": 0.1}).items())
        for seed in range(3)
        for r in (10, 20)
    ]
    verdicts = [claim.verdict for claim in rounds.judge_extremes(rows)]
    assert verdicts == ["holds", "holds", "does not hold", "holds", "holds"]
    assert RIVALS[2] == "SCAFFOLD"


def test_weights_must_differ_less_than_data_sizes() -> None:
    def rows(weight: float) -> list[dict]:
        return [
            {"method": "FedBC", "E": 1, "seed": seed, "round": r}
            | {"gap_weight": weight + 0.001 * seed, "gap_data": 0.3}
            for seed in range(3)
            for r in (10, 20)
        ]

    assert [weights.weight_claim(rows(weight), 1).verdict for weight in (0.2, 0.5)] == ["holds", "does not hold"]


def test_fresh_rows_are_from_the_clients_own_law_and_in_no_split() -> None:
    given = options(alpha=0.5, beta=0.5, clients=12, max_size=80)
    federation = data.load("synthetic", seed=3, **dict(given))
    assert isinstance(federation, Federation)
    x, y = fresh_rows(given, 3, 4)
    assert x.shape == (FRESH, 60)
    law = client_law(0.5, 0.5, 60, 10, 3, 4)
    assert np.mean(law.label(x) == y) > 0.99  # rounded to 32 bits
    np.testing.assert_allclose(x.mean(axis=0), law.center, atol=0.1)
    for part in ("train", "validation", "test"):
        rows, labels = federation.split(part).of(4)
        assert np.mean(law.label(rows) == labels) > 0.95  # the same law
        assert not {tuple(row[:3]) for row in rows.round(5)} & {tuple(row[:3]) for row in x.round(5)}


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
