"""FedBC's nets on images: claims that can fail."""

from __future__ import annotations

from polyfed.papers.fedbc import images
from polyfed.papers.fedbc.contenders import LOCAL
from polyfed.papers.shared.experiment import Row
from tests.papers.fedbc.made_up import global_rows, rows_of


def cell(C: int, exponent: float, E: int = 5, task: str = "mnist") -> Row:
    return {"C": C, "exponent": exponent, "E": E, "task": task}


def test_fedbc_is_judged_in_the_mean_over_cells_and_cell_by_cell() -> None:
    rows = [row for C in (1, 2, 3) for row in global_rows(cell(C, 1.3), ours=0.8, size=0.7, uniform=0.9)]
    claims = images.judge_global(rows)
    assert [claim.verdict for claim in claims[::2]] == [*["holds"] * 4, "does not hold", "holds", "does not hold"]
    assert [claim.verdict for claim in claims[1::2]] == [claim.verdict for claim in claims[::2]]
    assert "+10.00 points" in claims[0].basis
    mixed = global_rows(cell(1, 1.3), ours=0.8, size=0.7) + global_rows(cell(2, 1.3), ours=0.7, size=0.75)
    mean, most = images.judge_global(mixed)[:2]
    assert mean.verdict == "holds"
    assert most.verdict == "does not hold"  # in one of two cells


def test_what_the_paper_says_of_single_columns_is_judged_there() -> None:
    hard = global_rows(cell(1, 1.3, task="cifar10"), ours=0.55)
    easy = global_rows(cell(3, 1.3, task="cifar10"), ours=0.55, size=0.6)
    *_, at_1, at_3 = images.judge_global(hard + easy)
    assert (at_1.verdict, at_3.verdict) == ("holds", "does not hold")
    for ours, verdict in ((0.55, "holds"), (0.52, "does not hold")):
        claim = images.judge_global(global_rows(cell(1, 1.3, 1, "cifar10"), ours=ours))[-1]
        assert "by 3 points" in claim.text
        assert claim.verdict == verdict


def test_local_models_are_judged_by_what_is_deployed() -> None:
    values = {"FedBC": 0.7, "FedBC-FineTune": 0.75, "Per-FedBC": 0.65, "Per-FedBC, own models": 0.72}
    shared = {"FedBC": 0.5, "Per-FedAvg": 0.4, "pFedMe": 0.6}
    rows = []
    for name, contender in LOCAL.items():
        served = {"global_test_mean": 0.5, "global_test_pooled": shared.get(name, 0.3)}
        ends = {f"{contender.judged}_test_mean": values.get(name, 0.6), **served}
        rows += rows_of(name, cell(2, 1.3, task="cifar10"), **ends)
    claims = images.judge_local(rows)
    wrong = {claim.text for claim in claims if claim.verdict != "holds"}
    assert {claim.verdict for claim in claims} == {"holds", "does not hold"}
    assert wrong == {
        f"{start}{end}"
        for start in (
            "Per-FedAvg is more accurate locally than FedBC",
            "Per-FedBC is more accurate locally than FedBC",
            "C = 2: FedBC's global model is more accurate than that of pFedMe (Table 2)",
        )
        for end in (", in the mean over the cells.", " in most cells.")
    }
