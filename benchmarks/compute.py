"""Float32 beside bfloat16 products, trained from the same seeds: `PYTHONPATH=src python benchmarks/compute.py`.

Real data where POLYFED_DATA has it (MNIST, Shakespeare's plays). Each seed is run in both types, one after the other,
on the same batches; a case's accuracy is that of the deployed models on test rows, and its time that of the rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import polyfed as pf
from polyfed.algorithms.contract import Algorithm
from polyfed.core.precision import Compute
from polyfed.core.startup import start
from polyfed.engine.simulation import Simulation

TYPES: tuple[Compute, ...] = ("float32", "bfloat16")


@dataclass(frozen=True)
class Case:
    """A federation, a model and a method; `options` are the data source's."""

    title: str
    source: str
    options: dict[str, Any]
    model: Any
    method: Algorithm
    rounds: int
    cohort: int

    def problem(self) -> pf.Problem:
        return pf.Problem(pf.data.load(self.source, **self.options), self.model)


def cases() -> dict[str, Case]:
    """Those of real sizes, and small nets, which a CPU is through with in minutes."""
    digits: dict[str, Any] = {"partition": "dirichlet", "clients": 100, "concentration": 0.3, "validation": 0}
    roles: dict[str, Any] = {"clients": 60, "min_rows": 50, "validation": 0, "predict": "all"}
    work: dict[str, Any] = {"local_steps": 20, "batch": 20}
    fedavg, apfl = pf.algorithms.FedAvg(lr=0.1, **work), pf.algorithms.APFL(lr=0.1, alpha=0.5, **work)
    small_cnn = pf.models.cnn(channels=(8, 16), hidden=(64,))
    small_lstm = pf.models.lstm(hidden=64, layers=1)
    return {
        "mlp": Case("FedAvg, MLP 784-200-200-10, MNIST", "mnist", digits, pf.models.mlp(), fedavg, 50, 20),
        "apfl": Case("APFL, the MLP, MNIST", "mnist", digits, pf.models.mlp(), apfl, 50, 20),
        "cnn": Case("FedAvg, FEMNIST CNN, MNIST", "mnist", digits, pf.models.femnist_cnn(), fedavg, 50, 20),
        "lstm": Case(
            *("FedAvg, LSTM of 817,872 parameters, Shakespeare", "shakespeare", roles, pf.models.lstm()),
            *(replace(fedavg, lr=1.0), 60, 20),
        ),
        "small-cnn": Case("FedAvg, CNN of 8 and 16 channels, MNIST", "mnist", digits, small_cnn, fedavg, 30, 20),
        "small-lstm": Case(
            *("FedAvg, LSTM of 64 units, Shakespeare", "shakespeare", roles | {"length": 40}, small_lstm),
            *(replace(fedavg, lr=1.0), 40, 10),
        ),
    }


CASES = cases()
SMALL, LARGE = ("mlp", "apfl", "small-cnn", "small-lstm"), ("mlp", "apfl", "cnn", "lstm")
"""What is run unless something else is asked for: on a CPU, and on an accelerator."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=CASES, help="these cases")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds")
    parser.add_argument("--rounds", type=int, help="rounds of each instead")
    parser.add_argument("--cohort", type=int, help="clients of a round instead")
    parser.add_argument("--json", type=Path, help="write the figures to this file; other cases that it has are kept")
    options = parser.parse_args()
    start()
    record = {
        "machine": {
            "device": jax.devices()[0].device_kind,
            "platform": jax.default_backend(),
            "devices": jax.device_count(),
            "python": platform.python_version(),
            "jax": jax.__version__,
        },
        "date": time.strftime("%Y-%m-%d"),
        "cases": {},
    }
    if options.json and options.json.exists():
        record["cases"] = json.loads(options.json.read_text())["cases"]
    for key in options.only or (SMALL if jax.default_backend() == "cpu" else LARGE):
        given = {name: getattr(options, name) for name in ("rounds", "cohort") if getattr(options, name)}
        found = beside(replace(CASES[key], **given), options.seeds)
        record["cases"][key] = found | {"summary": summary(found)}
        print(json.dumps({"case": key, **summary(found)}), flush=True)
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")


def beside(case: Case, seeds: int) -> dict[str, Any]:
    """Accuracy and seconds a round of every seed, by type."""
    problem = case.problem()
    found: dict[str, Any] = {name: defaultdict(list) for name in TYPES}
    for seed in range(seeds):
        for compute in TYPES:
            for name, value in trained(case, problem, seed, compute).items():
                found[compute][name].append(value)
    about = {"title": case.title, "rounds": case.rounds, "cohort": case.cohort, "clients": len(problem)}
    return about | {"seeds": seeds} | found


def trained(case: Case, problem: pf.Problem, seed: int, compute: Compute) -> dict[str, float]:
    run = Simulation(problem, case.method, participation=case.cohort, seed=seed, compute=compute)
    run.prepare()
    run.advance(1)  # which compiles, and warms up
    before = run.seconds
    run.advance(case.rounds - 1)
    tested = run.measure()["personal"]["test"]
    return {
        "accuracy": float(np.nanmean(tested["accuracy"])),
        "loss": float(np.nanmean(tested["loss"])),
        "round_seconds": (run.seconds - before) / (case.rounds - 1),
    }


def summary(found: dict[str, Any]) -> dict[str, float | None]:
    """Means over the seeds, the mean difference with its standard error, and how many times as fast bfloat16 was."""
    exact, narrow = (np.array(found[name]["accuracy"]) for name in TYPES)
    change, times = narrow - exact, [min(found[name]["round_seconds"]) for name in TYPES]
    several = len(change) > 1
    return {
        "accuracy": float(exact.mean()),
        "accuracy_bfloat16": float(narrow.mean()),
        "spread_over_seeds": float(exact.std(ddof=1)) if several else None,
        "difference": float(change.mean()),
        "error": float(change.std(ddof=1) / len(change) ** 0.5) if several else None,
        "round_seconds": times[0],
        "round_seconds_bfloat16": times[1],
        "times_as_fast": times[0] / times[1],
    }


if __name__ == "__main__":
    main()
