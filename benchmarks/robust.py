"""What withstands how many attackers: `robust.py FILE.csv` runs every rule under every attack.

scikit-learn's digits at 20 clients, FedAvg with 5 local steps, all clients in every round. The figure is the global
model's accuracy on the honest clients' test rows after the last round. A seed draws the partition, the split, the
attackers and the batches. `--table` prints the tables of docs/robust.md from such a file: the mean over seeds, and the
95% interval of the mean by Student's t.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

RULES: dict[str, dict[str, Any] | None] = {
    "mean": None,
    "mean, bounded": {"rule": "mean", "bound": "median"},
    "median": {"rule": "median"},
    "trimmed mean": {"rule": "trimmed_mean", "attackers": 0.4},
    "Krum": {"rule": "krum", "attackers": 0.4},
    "Multi-Krum, 10": {"rule": "krum", "attackers": 0.4, "keep": 10},
    "geometric median": {"rule": "geometric_median"},
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
PARTITIONS: dict[str, dict[str, Any]] = {
    "even": {"partition": "iid"},
    "skewed": {"partition": "dirichlet", "concentration": 0.5},
}
MODELS = ("linear", "net")
COLUMNS = ("model", "labels", "attack", "share", "rule", "seed", "accuracy")


@dataclass(frozen=True)
class Case:
    """One cell of a table."""

    model: str
    labels: str
    attack: str
    share: float
    rule: str

    def accuracy(self, rounds: int, seed: int) -> float:
        import polyfed as pf

        warnings.simplefilter("ignore", RuntimeWarning)  # that a run diverged is its accuracy
        model = pf.models.linear() if self.model == "linear" else pf.models.mlp([64, 64])
        problem = pf.Problem(pf.data.load("digits", clients=20, seed=seed, **PARTITIONS[self.labels]), model, "softmax")
        rule, options = RULES[self.rule], ATTACKS[self.attack]
        attack = None if options is None else pf.Attack(share=self.share, **options)
        result = pf.simulate(
            problem,
            pf.algorithms.FedAvg(
                lr=0.5 if self.model == "linear" else 0.1, local_steps=5, batch=20, weighting="uniform"
            ),
            rounds=rounds if self.model == "linear" else 2 * rounds,
            eval_every=2 * rounds,
            seed=seed,
            aggregate=None if rule is None else pf.Aggregate(**rule),
            attack=attack,
            devices=1,
        )
        names = problem.federation.clients
        false = [] if attack is None else [names[place] for place in attack.attackers(names, seed)]
        rows = result.evaluate("test")
        return float(np.mean(rows[~rows["client"].isin(false)]["personal_accuracy"]))


def cases(models: list[str], labels: list[str]) -> Iterator[Case]:
    for model in models:
        for partition in labels:
            for attack, options in ATTACKS.items():
                for share in SHARES if options else (0.0,):
                    for rule in RULES:
                        yield Case(model, partition, attack, share, rule)


def measure(file: Path, given: argparse.Namespace) -> None:
    """Run what is not in the file yet, several runs at a time, and add each one's row as it ends."""
    known = {(case, seed) for case, seed, _ in read(file)}
    wanted = [(case, seed) for seed in range(given.seeds) for case in cases(given.models, given.labels)]
    with file.open("a", newline="") as out, ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        table = csv.writer(out)
        if not out.tell():
            table.writerow(COLUMNS)
        futures = {
            pool.submit(case.accuracy, given.rounds, seed): (case, seed)
            for case, seed in wanted
            if (case, seed) not in known
        }
        for done, future in enumerate(as_completed(futures), 1):
            case, seed = futures[future]
            table.writerow([*astuple(case), seed, round(future.result(), 4)])
            out.flush()
            print(f"{done} of {len(futures)}", end="\r", file=sys.stderr)


def read(file: Path) -> Iterator[tuple[Case, int, float]]:
    """The rows of a file; none where there is no file."""
    if file.exists():
        with file.open() as lines:
            for row in csv.DictReader(lines):
                case = Case(row["model"], row["labels"], row["attack"], float(row["share"]), row["rule"])
                yield case, int(row["seed"]), float(row["accuracy"])


def show(file: Path) -> None:
    """The tables, one for each model and partition."""
    found: dict[Case, list[float]] = defaultdict(list)
    for case, _, accuracy in read(file):
        found[case].append(100 * accuracy)
    for model in MODELS:
        for labels in PARTITIONS:
            known = {case for case in found if (case.model, case.labels) == (model, labels)}
            if not known:
                continue
            print(f"\n{model}, {labels}:\n\n| attack | " + " | ".join(RULES) + " |")
            print("| --- |" + " ---: |" * len(RULES))
            for attack, options in ATTACKS.items():
                for share in SHARES if options else (0.0,):
                    cells = [_cell(found.get(Case(model, labels, attack, share, rule), [])) for rule in RULES]
                    name = f"{attack}, {share:.0%}" if options else attack
                    print(f"| {name} | " + " | ".join(cells) + " |")


def _cell(values: list[float]) -> str:
    """The mean, and by how much it may be off: half of the 95% interval."""
    if len(values) < 2:
        return f"{values[0]:.0f}" if values else ""
    half = t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.0f} ± {half:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=30, help="of the linear model; the net has twice as many")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--labels", nargs="+", choices=list(PARTITIONS), default=list(PARTITIONS))
    parser.add_argument("--table", action="store_true", help="print the tables of a file that is there")
    given = parser.parse_args()
    if not given.table:
        measure(given.file, given)
    show(given.file)


if __name__ == "__main__":
    main()
