"""What a warm `pf.simulate` costs: short runs on a problem whose programs are compiled already.

    python benchmarks/warm.py

It uses only public names, so that one script measures any version of the package: set PYTHONPATH to its `src`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import polyfed as pf

ROUNDS, REPEATS = 4, 15


def milliseconds(work: Callable[[], object]) -> float:
    """The median of some calls, after two that compile."""
    for _ in range(2):
        work()
    taken = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


def main() -> None:
    federation = pf.data.load("synthetic", alpha=0.5, beta=0.5, clients=30)
    models = {"linear": pf.models.linear(), "MLP [32]": pf.models.mlp([32])}
    methods = {"FedAvg": pf.algorithms.FedAvg(lr=0.05), "APFL": pf.algorithms.APFL(lr=0.05)}
    for model, architecture in models.items():
        for name, method in methods.items():
            problem = pf.Problem(federation, architecture, "softmax", l2=1e-4)
            taken = milliseconds(lambda p=problem, m=method: pf.simulate(p, m, rounds=ROUNDS, eval_every=ROUNDS))
            print(f"{name}, {model}: {taken:.1f} ms for a warm run of {ROUNDS} rounds", flush=True)


if __name__ == "__main__":
    main()
