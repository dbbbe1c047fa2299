"""What choices of the papers' code change, measured on small federations: `PYTHONPATH=src python benchmarks/faults.py`.

docs/errata.md has the table. Every figure is a mean over seeds, with the half width of its 95% interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.engine.measure import FineTune
from polyfed.studies.verdicts.intervals import paired

SEEDS, ROUNDS = range(5), 100
Both = tuple[float, float]


def main() -> None:
    cases: dict[str, Callable[[int], Both]] = {
        "FedBC from x_i, from z: accuracy of the global model": lambda seed: fedbc(seed, "global"),
        "FedBC from x_i, from z: accuracy of the clients' models": lambda seed: fedbc(seed, "personal"),
        "fine-tuned on test rows, on training rows: accuracy": leaking,
        "the coin of Scaffnew drawn once, drawn anew: log10 of the distance": coins,
        "APFL mixing logits, mixing parameters: accuracy": logits,
        "FLIX from two starts, from one: accuracy of the mixture": starts,
        "FedAvg by size, uniform: accuracy": weights,
    }
    for title, case in cases.items():
        found = np.array([case(seed) for seed in SEEDS])
        shown = [paired(found[:, 0]), paired(found[:, 1]), paired(found[:, 0] - found[:, 1])]
        print(f"{title}: " + ", ".join(f"{each.estimate:.3f} ± {each.high - each.estimate:.3f}" for each in shown))


def synthetic(seed: int) -> pf.Problem:
    fed = pf.data.load("synthetic", alpha=0.5, beta=0.5, clients=30, max_size=1000, seed=seed)
    return pf.Problem(fed, pf.models.linear(), "softmax", l2=1e-4)


def digits(seed: int) -> pf.Problem:
    fed = pf.data.load("digits", clients=10, partition="dirichlet", concentration=0.3, seed=seed)
    return pf.Problem(fed, pf.models.mlp([32]), "softmax", l2=1e-4)


def last(problem: pf.Problem, method: Any, seed: int, name: str, **options: Any) -> float:
    result = pf.simulate(problem, method, rounds=ROUNDS, seed=seed, eval_every=ROUNDS, **options)
    return float(result.rows[-1][name])


def fedbc(seed: int, model: str) -> Both:
    problem = synthetic(seed)
    own, server = (
        last(problem, pf.algorithms.FedBC(lr=0.03, local_epochs=5, start=start), seed, f"{model}_test_accuracy")
        for start in ("own", "server")
    )
    return own, server


def leaking(seed: int) -> Both:
    tune = FineTune(10, 0.1, 20)
    problem, method = synthetic(seed), pf.algorithms.FedAvg(lr=0.1)
    leaks, honest = (
        last(problem, method, seed, "finetuned_test_accuracy", finetune=tune, adapt_on_test=leak)
        for leak in (True, False)
    )
    return leaks, honest


def coins(seed: int) -> Both:
    """Four quadratics, p = 0.2, 400 iterations: where the coin is part of a compiled program, it falls once."""
    rng = np.random.default_rng(seed)
    h, c, p = rng.uniform(0.1, 1, (4, 5)), rng.normal(size=(4, 5)), 0.2
    star = np.sum(h * c, axis=0) / h.sum(axis=0)

    def distance(falls: Sequence[bool]) -> float:
        x, control = np.zeros((4, 5)), np.zeros((4, 5))
        for fall in falls:
            ahead = x - (h * (x - c) - control)
            x = np.tile(ahead.mean(axis=0), (4, 1)) if fall else ahead
            control = control + p * (x - ahead)
        return float(np.log10(np.mean(np.sum((x - star) ** 2, axis=1)) + 1e-30))

    return distance([False] * 400), distance(list(rng.random(400) < p))


def logits(seed: int) -> Both:
    problem = digits(seed)
    method = pf.algorithms.APFL(alpha=0.5, adaptive="off", lr=0.1)
    result = pf.simulate(problem, method, rounds=ROUNDS, seed=seed, eval_every=ROUNDS)
    shared = result.global_params

    def accuracy(client: int, by_logits: bool) -> float:
        x, y = problem.federation.test.of(client)
        mixed = result.personal(client)
        own = jax.tree.map(lambda m, w: 2 * m - w, mixed, shared)
        scores = [problem.model.apply(params, jnp.asarray(x)) for params in (own, shared)]
        answer = (scores[0] + scores[1]) / 2 if by_logits else problem.model.apply(mixed, jnp.asarray(x))
        return float(np.mean(np.argmax(answer, axis=1) == y))

    both = [[accuracy(client, way) for way in (True, False)] for client in range(len(problem))]
    return tuple(np.mean(both, axis=0))


def starts(seed: int) -> Both:
    """Halfway between FedAvg's net and the clients' own: drawn from one start, and from another."""
    problem = digits(seed)
    shared = pf.simulate(problem, pf.algorithms.FedAvg(lr=0.1), rounds=ROUNDS, seed=seed, eval_every=ROUNDS)

    def mixture(start: int) -> float:
        own = pf.simulate(problem, pf.algorithms.Local(lr=0.1), rounds=ROUNDS, seed=start, eval_every=ROUNDS)
        right = []
        for client in range(len(problem)):
            x, y = problem.federation.test.of(client)
            mixed = jax.tree.map(lambda a, b: (a + b) / 2, own.personal(client), shared.global_params)
            right.append(np.mean(np.argmax(problem.model.apply(mixed, jnp.asarray(x)), axis=1) == y))
        return float(np.mean(right))

    return mixture(seed + 1000), mixture(seed)


def weights(seed: int) -> Both:
    problem = synthetic(seed)
    by_size, uniform = (
        last(problem, pf.algorithms.FedAvg(lr=0.1, weighting=way), seed, "global_test_accuracy")
        for way in ("size", "uniform")
    )
    return by_size, uniform


if __name__ == "__main__":
    main()
