"""What the references share: the clients' objectives with their derivatives, and the rows of each step.

The parameters of softmax regression are one matrix, with the bias as its last row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.core import randomness
from polyfed.core.randomness import Purpose

Matrix = np.ndarray
Members = Callable[[int], list[int]]
"""The clients that take part in a round."""


class Even(int):
    """The rows of a step, where each pass is cut into batches of nearly equal size."""


class Client:
    """f(x) = mean cross-entropy + l2/2 |x|^2 of one client."""

    def __init__(self, x: Matrix, y: Matrix, classes: int, l2: float) -> None:
        self.a = np.hstack([x, np.ones((len(x), 1))])
        self.onehot = np.eye(classes)[y]
        self.l2 = l2
        self.size = len(x)

    def loss(self, params: Matrix) -> float:
        logits = self.a @ params
        logits = logits - logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float(-np.mean(np.sum(self.onehot * log_p, axis=1)) + 0.5 * self.l2 * np.sum(params**2))

    def grad(self, params: Matrix, rows: np.ndarray | None = None) -> Matrix:
        a, onehot = (self.a, self.onehot) if rows is None else (self.a[rows], self.onehot[rows])
        return a.T @ (_probabilities(a @ params) - onehot) / len(a) + self.l2 * params

    def hessian_product(self, params: Matrix, direction: Matrix, rows: np.ndarray | None = None) -> Matrix:
        """The Hessian times a direction, in closed form."""
        a = self.a if rows is None else self.a[rows]
        p, moved = _probabilities(a @ params), a @ direction
        inner = p * moved - p * np.sum(p * moved, axis=1, keepdims=True)
        return a.T @ inner / len(a) + self.l2 * direction


def _probabilities(logits: Matrix) -> Matrix:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def clients_of(problem: pf.Problem) -> list[Client]:
    fed = problem.federation
    assert fed.classes is not None
    return [Client(*fed.train.of(i), fed.classes, problem.l2) for i in range(len(fed))]


def logistic_gradients(problem: pf.Problem, models: Matrix) -> Matrix:
    """grad f_i of logistic regression without a bias, at every client's row of `models`."""
    gradients = []
    for i, w in enumerate(models):
        a, b = problem.federation.train.of(i)
        gradients.append(-(a * (b / (1 + np.exp(b * (a @ w))))[:, None]).mean(axis=0) + problem.l2 * w)
    return np.array(gradients)


def trusted_share(g: Matrix, h: Matrix, slack: float) -> float:
    """How much of a control variate is subtracted: the slack times the multiple of h nearest to g, within [0, 1]."""
    if not np.any(h):
        return 0.0
    (nearest,) = np.linalg.lstsq(np.ravel(h)[:, None], np.ravel(g), rcond=None)[0]
    return float(min(1.0, max(0.0, slack * nearest)))


def batches(
    problem: pf.Problem, seed: int, round: int, client: int, batch: int | None, steps: int
) -> Iterator[np.ndarray | None]:
    """The rows of each step: None for all of them; else one shuffled pass after the other, as `_cut`."""
    if batch is None:
        yield from [None] * steps
        return
    size, words = _size_and_words(problem, client)
    passes = -(-size // batch)
    for step in range(steps):
        order = shuffled_rows(seed, round, words, step // passes, size)
        yield _cut(order, batch)[step % passes]


def side_batches(
    problem: pf.Problem, seed: int, round: int, client: int, step: int, batch: int | None, count: int
) -> list[np.ndarray | None]:
    """The rows of the inner steps that one step takes, batches as those of the steps themselves."""
    if batch is None:
        return [None] * count
    size, words = _size_and_words(problem, client)
    passes, key = -(-size // batch), _side_key(seed, round, words, step)
    drawn: list[np.ndarray | None] = []
    for j in range(count):
        order = np.asarray(randomness.shuffled(jax.random.fold_in(key, j // passes), size, jnp.arange(size)))
        drawn.append(_cut(order, batch)[j % passes])
    return drawn


def independent_batch(
    problem: pf.Problem, seed: int, round: int, client: int, step: int, which: int, batch: int | None
) -> np.ndarray | None:
    """The rows of the first or second batch that a step draws beside its own."""
    if batch is None:
        return None
    size, words = _size_and_words(problem, client)
    return _cut(_independent_rows(seed, round, words, step, which, size), batch)[0]


def _cut(order: np.ndarray, batch: int) -> list[np.ndarray]:
    """A pass in batches: the last one short or, of `Even`, the first ones with a row more than the others."""
    if isinstance(batch, Even):
        return np.array_split(order, -(-len(order) // batch))
    return [order[first : first + batch] for first in range(0, len(order), batch)]


@cache
def shuffled_rows(seed: int, round: int, words: tuple[int, ...], epoch: int, size: int) -> np.ndarray:
    order = _shuffled(np.uint32(seed), round, np.array(words, np.uint32), epoch, size)
    return np.asarray(order)[:size]


@jax.jit
def _shuffled(seed, round, words, epoch, size):
    key = randomness.client_key(randomness.purpose_key(seed, Purpose.LOCAL, round), words)
    return randomness.shuffled(jax.random.fold_in(key, epoch), size, jnp.arange(64))


def _size_and_words(problem: pf.Problem, client: int) -> tuple[int, tuple[int, ...]]:
    """A client's number of rows, and the words of which its keys are made."""
    return len(problem.federation.train.of(client)[0]), tuple(int(word) for word in problem.client_ids[client])


def _side_key(seed: int, round: int, words: tuple[int, ...], step: int) -> jax.Array:
    shared = randomness.purpose_key(jnp.uint32(seed), Purpose.LOCAL, round)
    key = randomness.client_key(shared, jnp.asarray(words, jnp.uint32))
    return jax.random.fold_in(jax.random.fold_in(key, 2**31 - 1), step)


@cache
def _independent_rows(seed: int, round: int, words: tuple[int, ...], step: int, which: int, size: int) -> np.ndarray:
    key = jax.random.split(_side_key(seed, round, words, step))[which]
    return np.asarray(randomness.shuffled(jax.random.fold_in(key, 0), size, jnp.arange(size)))
