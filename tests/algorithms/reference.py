"""Federated rounds of softmax regression in plain NumPy, from the papers' pseudo-code: what the engine must match.

Parameters are one matrix with the bias as its last row. Batches come from the library's sampler, which has its own
tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import randomness
from polyfed.core.randomness import Purpose

Matrix = np.ndarray


class Client:
    """f(x) = mean cross-entropy + l2/2 |x|^2 of one client."""

    def __init__(self, x: Matrix, y: Matrix, classes: int, l2: float) -> None:
        self.a = np.hstack([x, np.ones((len(x), 1))])
        self.onehot = np.eye(classes)[y]
        self.l2 = l2
        self.size = len(x)

    def grad(self, params: Matrix, rows: np.ndarray | None = None) -> Matrix:
        a, onehot = (self.a, self.onehot) if rows is None else (self.a[rows], self.onehot[rows])
        logits = a @ params
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return a.T @ (p - onehot) / len(a) + self.l2 * params


def clients_of(problem) -> list[Client]:
    fed = problem.federation
    return [Client(*fed.train.of(i), fed.classes, problem.l2) for i in range(len(fed))]


def batches(problem, seed: int, round: int, client: int, batch: int | None, steps: int) -> Iterator[np.ndarray | None]:
    """The rows of each step: None for all of them; else one shuffled pass after the other, its last batch short."""
    size = len(problem.federation.train.of(client)[0])
    if batch is None:
        yield from [None] * steps
        return
    passes = -(-size // batch)
    words = tuple(int(word) for word in problem.client_ids[client])
    for step in range(steps):
        order = shuffled_rows(seed, round, words, step // passes, size)
        yield order[(step % passes) * batch : (step % passes + 1) * batch]


@cache
def shuffled_rows(seed: int, round: int, words: tuple[int, ...], epoch: int, size: int) -> np.ndarray:
    order = _shuffled(np.uint32(seed), round, np.array(words, np.uint32), epoch, size)
    return np.asarray(order)[:size]


@jax.jit
def _shuffled(seed, round, words, epoch, size):
    key = randomness.client_key(randomness.purpose_key(seed, Purpose.LOCAL, round), words)
    return randomness.shuffled(jax.random.fold_in(key, epoch), size, jnp.arange(64))


def fedavg(problem, rounds, lr, steps, batch, weighting, seed=0, mu=0.0, start=None) -> Matrix:
    """FedAvg; with mu > 0, FedProx."""
    clients = clients_of(problem)
    w = start
    for r in range(rounds):
        sum_of_models, sum_of_weights = 0.0, 0.0
        for i, client in enumerate(clients):
            y = w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * (client.grad(y, rows) + mu * (y - w))
            weight = client.size if weighting == "size" else 1.0
            sum_of_models, sum_of_weights = sum_of_models + weight * y, sum_of_weights + weight
        w = sum_of_models / sum_of_weights
    return w


def local(problem, rounds, lr, steps, batch, seed=0, start=None) -> list[Matrix]:
    """Each client alone; `steps` a number, or one for each client."""
    models = [start.copy() for _ in range(len(problem))]
    for r in range(rounds):
        for i, client in enumerate(clients_of(problem)):
            for rows in batches(problem, seed, r, i, batch, steps if isinstance(steps, int) else steps[i]):
                models[i] = models[i] - lr * client.grad(models[i], rows)
    return models


def scaffold(
    problem, rounds, lr, steps, batch, option, cohort: Callable[[int], list[int]], server_lr=1.0, seed=0, start=None
) -> tuple[Matrix, Matrix, list[Matrix]]:
    """SCAFFOLD with the cohort of each round given: the model, c, and every c_i."""
    clients = clients_of(problem)
    x, c = start, np.zeros_like(start)
    c_of = [np.zeros_like(start) for _ in clients]
    for r in range(rounds):
        members = cohort(r)
        moves, changes = [], []
        for i in members:
            y = x.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * (clients[i].grad(y, rows) - c_of[i] + c)
            new = clients[i].grad(x) if option == "I" else c_of[i] - c + (x - y) / (steps * lr)
            moves.append(y - x)
            changes.append(new - c_of[i])
            c_of[i] = new
        x = x + server_lr * np.mean(moves, axis=0)
        c = c + len(members) / len(clients) * np.mean(changes, axis=0)
    return x, c, c_of
