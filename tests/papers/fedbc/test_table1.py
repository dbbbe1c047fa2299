"""FedBC, Table 1: claims that can fail."""

from __future__ import annotations

from polyfed.papers.fedbc import table1
from tests.papers.fedbc.made_up import TASK, global_records


def test_fedbc_is_judged_against_every_rival_and_the_uniform_average() -> None:
    recorded = global_records(ours=0.8, size=0.7, uniform=0.9)
    claims = table1._accuracy_claims(recorded, TASK)
    verdicts = {claim.text.rpartition("that of ")[2]: claim.passed for claim in claims}
    assert verdicts["FedAvg, by size."]
    assert not verdicts["FedAvg, uniform (not in the paper)."]
    assert len(claims) == 5
    assert [claim.passed for claim in table1._variance_claims(recorded, TASK)] == [True, False]
