"""Control variates of clients that come seldom, plain and trusted side by side: `controls.py FILE.csv`.

MNIST by writer with the FEMNIST CNN, 10 of 539 writers a round, batches of 20, 5 local steps on average. Each run adds
its rows to the file as soon as it ends; a run that diverges ends there.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polyfed as pf

A = pf.algorithms
COLUMNS = ("method", "alpha", "lr", "steps", "trust", "seed", "round", "objective", "accuracy", "ended")
RATES = (0.1, 0.03)
PLM = {"plm_epochs": 20, "plm_lr": 0.03, "plm_batch": 20}
Row = dict[str, Any]


def planned(seed: int) -> Iterator[tuple[Row, A.Algorithm]]:
    """Every run, what is treated first."""
    for trust in ("always", "never"):
        for steps in ("fixed", "random"):
            skip: dict[str, Any] = {"p": 0.2, "batch": 20, "steps": steps, "trust": trust}
            for lr in RATES:
                row = {"lr": lr, "steps": steps, "trust": trust, "seed": seed}
                yield {"method": "scaffnew", "alpha": 1.0, **row}, A.Scaffnew(lr=lr, **skip)
                for alpha in (0.5, 0.9):
                    yield {"method": "scafflix", "alpha": alpha, **row}, A.Scafflix(alpha=alpha, lr=lr, **skip, **PLM)
        for lr in RATES:
            row = {"lr": lr, "steps": "fixed", "trust": trust, "seed": seed}
            method = A.Scaffold(lr=lr, local_steps=5, batch=20, trust=trust)
            yield {"method": "scaffold", "alpha": 1.0, **row}, method
    for lr in RATES:
        row = {"lr": lr, "steps": "fixed", "trust": "", "seed": seed}
        yield {"method": "fedavg", "alpha": 1.0, **row}, A.FedAvg(lr=lr, local_steps=5, batch=20, weighting="uniform")
        for alpha in (0.5, 0.9):
            method = A.FLIX(alpha=alpha, local_lr=lr, local_steps=5, batch=20, **PLM)
            yield {"method": "flix", "alpha": alpha, **row}, method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--clients", type=int, help="fewer writers, to try it out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many seconds")
    given = parser.parse_args()
    begun = time.monotonic()
    warnings.simplefilter("ignore", RuntimeWarning)  # that a run diverged is in its last column
    problem = pf.Problem(pf.data.load("mnist_by_writer", clients=given.clients), pf.models.femnist_cnn(), "softmax")
    with given.file.open("w", newline="") as file:
        table: csv.DictWriter[str] = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for row, method in planned(given.seed):
            if time.monotonic() - begun > given.seconds:
                print("no time for", row, flush=True)
                continue
            run = pf.simulate(
                problem,
                method,
                rounds=given.rounds,
                participation=min(10, len(problem) // 2),
                eval_every=max(1, given.rounds // 10),
                seed=given.seed,
            )
            for measured in run.history.to_dict("records"):
                table.writerow(
                    row
                    | {
                        "round": measured["round"],
                        "objective": f"{measured['objective']:.5g}",
                        "accuracy": f"{measured.get('personal_test_accuracy', measured['global_test_accuracy']):.4f}",
                        "ended": "diverged" if run.diverged else "",
                    }
                )
            file.flush()
            print(
                *row.values(),
                *run.history["objective"].map("{:.3g}".format),
                f"{time.monotonic() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
