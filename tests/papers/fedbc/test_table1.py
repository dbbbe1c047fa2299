"""FedBC, Table 1: claims that can fail."""

from __future__ import annotations

from polyfed.papers.fedbc import table1
from tests.papers.fedbc.made_up import global_rows


def test_fedbc_is_judged_against_every_rival_and_the_uniform_average() -> None:
    claims = table1.judge(global_rows({"E": 5}, ours=0.8, size=0.7, uniform=0.9))
    verdicts = {claim.text.rpartition("that of ")[2]: claim.verdict for claim in claims[:5]}
    assert verdicts["FedAvg, by size."] == "holds"
    assert verdicts["FedAvg, uniform (not in the paper)."] == "does not hold"
    assert [claim.verdict for claim in claims[5:]] == ["holds", "does not hold"]


def test_a_lead_within_the_noise_is_undecided() -> None:
    rows = global_rows({"E": 5}, ours=0.5001)
    noisy = [
        row | ({"global_test_pooled": 0.5 + 0.1 * (-1) ** row["seed"]} if row["method"] == "FedBC" else {})
        for row in rows
    ]
    assert table1.judge(noisy)[0].verdict == "undecided"
