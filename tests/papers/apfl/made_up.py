"""Comparisons of made-up curves, where it is known which claims hold."""

from __future__ import annotations

import numpy as np

from polyfed.papers.apfl.methods import ADAPTIVE, ALPHAS
from polyfed.papers.shared.comparison import Comparison
from polyfed.papers.shared.held_out import HeldOutCurve
from polyfed.papers.shared.tuned import Entry

LABELS = {
    **{f"APFL, α = {alpha:g}": "personal" for alpha in ALPHAS},
    ADAPTIVE: "personal",
    "FedAvg, global": "global",
    "FedAvg, localized": "finetuned",
    "SCAFFOLD, global": "global",
    "SCAFFOLD, localized": "finetuned",
    "perFedAvg": "personal",
    "pFedMe": "personal",
}


def curves(judged: str, accuracy: float, loss: float = 0.1, share: float = 0.5) -> list[HeldOutCurve]:
    """Two seeds that end in these values, and in 1% more."""
    ends = {"train_loss": loss, "test_accuracy": accuracy, "validation_accuracy": accuracy - 0.03}
    return [
        HeldOutCurve(
            (
                {"round": 0, **{f"{judged}_{k}": 0.0 for k in ends}},
                {"round": 5, **{f"{judged}_{k}": v + d for k, v in ends.items()}},
            ),
            np.array([share - 0.1, share + 0.1]),
        )
        for d in (0.0, 0.01)
    ]


def made_up_comparison(column: str, accuracy: dict[str, float], losses: dict[str, float] | None = None) -> Comparison:
    entries = {label: Entry("", (), judged) for label, judged in LABELS.items() if label in accuracy}
    ends = {label: curves(LABELS[label], value, (losses or {}).get(label, 0.1)) for label, value in accuracy.items()}
    return Comparison(entries, {}, {(column, label): group for label, group in ends.items()})
