"""`polyfed bench sweep`: candidates as one program beside as many separate runs, and what a short warm run costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import polyfed as pf
from polyfed.algorithms import APFL, FedAvg
from polyfed.core.errors import PolyfedError
from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate, simulate_all

CLIENTS, ROUNDS, SHORT = 30, 100, 4
MODELS = {"linear": pf.models.linear(), "MLP [32]": pf.models.mlp([32])}
METHODS = {"FedAvg": FedAvg(lr=0.02), "APFL": APFL(lr=0.02)}
SPREAD = 1.1
"""From one candidate's stepsize to the next."""


@dataclass(frozen=True)
class SweepCost:
    """Seconds for so many candidates of a method, in one run of the benchmark; everything was compiled before."""

    method: str
    model: str
    candidates: int
    evaluations: int
    """how often the clients were evaluated in a run, the start included"""
    one_run: float
    separate_runs: float
    sweep: float
    short_run: float
    """a run of 4 rounds, evaluated at its start and its end"""

    def as_dict(self) -> dict[str, str | float]:
        ratios = {"share": self.sweep / self.separate_runs, "times_one_run": self.sweep / self.one_run}
        return asdict(self) | ratios


def bench_sweep(candidates: int = 24, repeat: int = 3) -> Iterator[SweepCost]:
    """For each method and model: all candidates apart, then together, in turns; the least of some repetitions.

    Twice: with an evaluation in every round, which is what `simulate` does unless it is told otherwise, and with one at
    the end, which is all that a search needs.
    """
    if candidates < 2 or repeat < 1:
        raise PolyfedError(f"candidates must be at least 2 and repeat at least 1, found {candidates} and {repeat}")
    federation = pf.data.load("synthetic", alpha=0.5, beta=0.5, clients=CLIENTS)
    for model, architecture in MODELS.items():
        for name, method in METHODS.items():
            problem = pf.Problem(federation, architecture, "softmax", l2=1e-4)
            planned = [PlannedRun(problem, replace(method, lr=0.02 * SPREAD**k)) for k in range(candidates)]
            for eval_every in (ROUNDS, 1):
                yield _cost(name, model, planned, eval_every, repeat)


def _cost(method: str, model: str, planned: list[PlannedRun], eval_every: int, repeat: int) -> SweepCost:
    problem, first = planned[0].problem, planned[0].algorithm

    def apart(runs: list[PlannedRun]) -> None:
        for run in runs:
            simulate(run.problem, run.algorithm, rounds=ROUNDS, eval_every=eval_every)

    def together() -> None:
        simulate_all(planned, rounds=ROUNDS, eval_every=eval_every)

    def short() -> None:
        simulate(problem, first, rounds=SHORT, eval_every=SHORT)

    short()
    simulate_all(planned, rounds=2, eval_every=1)
    one, separate, sweep = [], [], []
    for _ in range(repeat):
        one.append(_seconds(lambda: apart(planned[:1])))
        separate.append(_seconds(lambda: apart(planned)))
        sweep.append(_seconds(together))
    warm = statistics.median(_seconds(short) for _ in range(15))
    return SweepCost(method, model, len(planned), 1 + ROUNDS // eval_every, min(one), min(separate), min(sweep), warm)


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
