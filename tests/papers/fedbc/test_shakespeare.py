"""FedBC, Table 9: the paper's sentences on accuracies and variances, each of which can fail."""

from __future__ import annotations

from collections.abc import Mapping

from polyfed.papers.fedbc import shakespeare
from polyfed.papers.fedbc.contenders import GLOBAL
from tests.papers.fedbc.made_up import rows_of

PAPERS_ORDER = {"FedAvg, by size": 5, "FedProx": 5, "FedBC": 4, "FedAvg, uniform": 3, "q-FedAvg": 3, "SCAFFOLD": 1}
PAPERS_VARIANCES = {"SCAFFOLD": 1, "FedBC": 2}


def judged(E: int, accuracies: Mapping[str, float], variances: Mapping[str, float]) -> list[str]:
    rows = []
    for label in GLOBAL:
        ends = {"global_test_pooled": 0.4 + accuracies.get(label, 3) / 100}
        ends["global_test_variance"] = variances.get(label, 3) / 100
        rows += rows_of(label, {"E": E}, **ends)
    return [claim.verdict for claim in shakespeare.judge(rows)]


def test_at_one_epoch_fedbc_is_between_and_its_variance_next_to_scaffolds() -> None:
    assert judged(1, PAPERS_ORDER, PAPERS_VARIANCES) == ["holds"] * 7
    best = judged(1, {"FedBC": 9}, {"FedBC": 9, "SCAFFOLD": 5})
    assert best[2:4] == ["does not hold"] * 2  # better than FedAvg and FedProx is not what the paper says
    assert best[5:] == ["does not hold"] * 2


def test_at_five_epochs_fedbc_is_best_and_its_variance_below_fedavgs_alone() -> None:
    variances = {"SCAFFOLD": 1, "FedProx": 2, "q-FedAvg": 2, "FedBC": 3, "FedAvg, by size": 4}
    assert judged(5, {"FedBC": 9}, variances) == ["holds"] * 5
    assert judged(5, {"FedBC": 1, "FedAvg, uniform": 1.5}, {"FedBC": 1, "SCAFFOLD": 2}) == [
        *["does not hold"] * 3,
        "holds",
        "does not hold",
    ]
