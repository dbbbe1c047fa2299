"""Studies that a report has to tell well, each as the runs it would be made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyfed.studies.run_directory import RunRecord
from tests.report.samples import fair, judged, make_run, moving

HOSPITALS = ["Charité", "Mount Sinai", "Karolinska", "St Thomas’", "Groote Schuur", "Hospital das Clínicas"]
AIRLINES = ["AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV", "9E"]


def _split(label: str, count: int, spread: float = 0.35, **options: Any) -> list[RunRecord]:
    """A method on several splits of the same rows."""
    runs = [make_run(label, seed=i, **options) for i in range(count)]
    for i, run in enumerate(runs):
        run.summary.update(split=i, splits=count)
    return judged(runs, spread)


def hospitals() -> list[RunRecord]:
    """Six sites with 7.5% positives; at one of them a single test row decides."""
    common: dict[str, Any] = {
        "clients": HOSPITALS,
        "metric": "auc",
        "curve": "accuracy",
        "positives": 0.075,
        "sizes": (60, 900),
    }
    methods = [
        _split("FedAvg", 4, models=("global", "alone", "constant"), lift=0.06, **common),
        _split("FedAvg, fine-tuned", 4, lift=0.03, **common),
        [moving(run) for run in _split("APFL", 4, lift=0.05, own_share=True, **common)],
        _split("Ditto", 4, lift=-0.25, **common),
    ]
    caution = "Hospital das Clínicas has 1 positive among 20 test rows: one patient moves its figures by 5 points"
    for runs in methods:
        for run in runs:
            run.clients[5] |= {"rows": 66.0, "train_rows": 26.0, "validation_rows": 20.0, "test_rows": 20.0}
            run.summary["cautions"] = [caution]
            fair(run)
        judged(runs, spread=0.8)
    return [run for runs in methods for run in runs]


def airlines() -> list[RunRecord]:
    common: dict[str, Any] = {
        "clients": AIRLINES,
        "metric": "auc",
        "curve": "accuracy",
        "positives": 0.2,
        "sizes": (300, 9000),
    }
    labels = {"FedAvg": 0.03, "APFL": 0.04, "FLIX": 0.03, "Scafflix": 0.035, "FedBC": 0.02, "PLSGD": 0.03}
    return [fair(run) for name, lift in labels.items() for run in _split(name, 3, lift=lift, **common)]


def classes() -> list[RunRecord]:
    """Three hundred clients, accuracy over more than two classes."""
    return [
        fair(make_run("FedAvg", clients=300, lift=0.02)),
        fair(make_run("APFL", clients=300, lift=0.06, own_share=True)),
    ]


def regression() -> list[RunRecord]:
    common: dict[str, Any] = {"clients": 12, "metric": "rmse", "sizes": (100, 4000)}
    return [*_split("FedAvg", 5, lift=0.02, **common), *_split("pFedMe", 5, lift=0.06, **common)]


def one_run() -> list[RunRecord]:
    return [make_run("APFL", own_share=True, metric="auc", positives=0.4)]


def undecided() -> list[RunRecord]:
    return _split("APFL", 3, clients=8, metric="auc", lift=0.01, sizes=(20, 60))


def harm() -> list[RunRecord]:
    models = ("global", "alone", "constant")
    return _split("FedAvg", 3, models=models, clients=10, lift=-0.12, sizes=(400, 4000), noise=0.02)


GALLERY: dict[str, Callable[[], list[RunRecord]]] = {
    "hospitals": hospitals,
    "airlines": airlines,
    "classes": classes,
    "regression": regression,
    "one-run": one_run,
    "undecided": undecided,
    "harm": harm,
}
