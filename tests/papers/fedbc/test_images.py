"""FedBC's nets on images: claims that can fail."""

from __future__ import annotations

from polyfed.papers.fedbc import images
from polyfed.papers.fedbc.contenders import LOCAL
from tests.papers.fedbc.made_up import TASK, global_records, records


def test_fedbc_is_judged_by_the_cells_in_which_it_is_ahead() -> None:
    claims = images._global_claims(global_records(ours=0.8, size=0.7, uniform=0.9), {(2, 1.3): TASK})
    assert [claim.passed for claim in claims] == [True, True, True, True, False, True, False]
    assert "+10.00 points" in claims[0].measured


def test_local_models_are_judged_by_what_is_deployed() -> None:
    values = {"FedBC": 0.7, "FedBC-FineTune": 0.75, "Per-FedBC": 0.65, "Per-FedBC, own models": 0.72}
    shared = {"FedBC": 0.5, "Per-FedAvg": 0.4, "pFedMe": 0.6}

    def row(name):
        served = {"global_test_mean": 0.5, "global_test_pooled": shared.get(name, 0.3)}
        return {f"{LOCAL[name].judged}_test_mean": values.get(name, 0.6), **served}

    table = {(TASK, name): records(**row(name)) for name in LOCAL}
    claims = images._local_claims(table, {(2, 1.3): TASK})
    assert [claim.passed for claim in claims] == [True, True, False, *[True] * 7, True, False]
    assert [claim.text.startswith("C = 2") for claim in claims] == [False] * 10 + [True] * 2
