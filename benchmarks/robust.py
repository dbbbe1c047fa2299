"""What withstands how many attackers: `robust.py FILE.csv` runs every rule under every attack and prints the table.

scikit-learn's digits at 20 clients, a linear model, FedAvg with 5 local steps, all clients in every round. The figure
is the global model's accuracy on the honest clients' test rows after the last round, the mean of `--seeds` seeds.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import polyfed as pf

RULES: dict[str, pf.Aggregate | None] = {
    "mean": None,
    "mean, bounded": pf.Aggregate("mean", bound="median"),
    "median": pf.Aggregate("median"),
    "trimmed mean": pf.Aggregate("trimmed_mean", 0.4),
    "Krum": pf.Aggregate("krum", 0.4),
    "Multi-Krum, 10": pf.Aggregate("krum", 0.4, keep=10),
    "geometric median": pf.Aggregate("geometric_median"),
}
ATTACKS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "sign flip": {"kind": "sign_flip"},
    "sign flip, 10 times": {"kind": "sign_flip", "strength": 10.0},
    "scale": {"kind": "scale"},
    "noise": {"kind": "noise"},
    "label flip": {"kind": "label_flip"},
    "little": {"kind": "little"},
    "little, 1.5": {"kind": "little", "strength": 1.5},
}
SHARES = (0.1, 0.2, 0.4)
COLUMNS = ("labels", "attack", "share", "rule", "seed", "accuracy")


def accuracy(problem: pf.Problem, rule: pf.Aggregate | None, attack: pf.Attack | None, rounds: int, seed: int) -> float:
    method = pf.algorithms.FedAvg(lr=0.5, local_steps=5, batch=20, weighting="uniform")
    result = pf.simulate(
        problem, method, rounds=rounds, eval_every=rounds, seed=seed, aggregate=rule, attack=attack, devices=1
    )
    names = problem.federation.clients
    false = [] if attack is None else [names[place] for place in attack.attackers(names, seed)]
    rows = result.evaluate("test")
    return float(np.mean(rows[~rows["client"].isin(false)]["personal_accuracy"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--skewed", action="store_true", help="labels differ between clients: Dirichlet 0.5")
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # that a run diverged is its accuracy
    scheme: dict[str, Any] = {"partition": "dirichlet", "concentration": 0.5} if given.skewed else {"partition": "iid"}
    problem = pf.Problem(pf.data.load("digits", clients=20, **scheme), pf.models.linear(), "softmax")
    found: dict[tuple[str, str], list[float]] = {}
    with given.file.open("w", newline="") as file:
        table: csv.DictWriter[str] = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for label, options in ATTACKS.items():
            for share in SHARES if options else (0.0,):
                case = f"{label}, {share:.0%}" if options else label
                for name, rule in RULES.items():
                    for seed in range(given.seeds):
                        attack = None if options is None else pf.Attack(share=share, **options)
                        value = accuracy(problem, rule, attack, given.rounds, seed)
                        found.setdefault((case, name), []).append(value)
                        labels = "skewed" if given.skewed else "even"
                        row = (labels, label, share, name, seed, round(value, 4))
                        table.writerow(dict(zip(COLUMNS, row, strict=True)))
                        file.flush()
    print("| attack | " + " | ".join(RULES) + " |")
    print("| --- |" + " ---: |" * len(RULES))
    for case in dict.fromkeys(case for case, _ in found):
        print(f"| {case} | " + " | ".join(f"{100 * np.mean(found[case, name]):.0f}" for name in RULES) + " |")


if __name__ == "__main__":
    main()
