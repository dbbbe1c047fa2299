"""Linear models of tags, in the space of the training rows: gradient descent without a number per word and client.

Every model here is a sum of training rows, w = sum_j a_j x_j, one for each tag, since all descents start at zero. So a
round needs only the products of the rows with each other: scores move by z <- z + G u where w moves by sum_j u_j x_j.
The iterates are those of `polyfed.algorithms`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import sparse

from polyfed.data.federation import Federation
from polyfed.papers.flix.line_search import Descent, line_search_descent
from polyfed.problem.metrics.tags import recall_at
from polyfed.problem.problem import precision

INNER = 5
"""The steps of an adaptation, and of FedAvg's local work."""
TOP = 5
TOGETHER = 8
"""Candidates that go together on a device."""
MOST = 500
"""The most iterations of a local descent. Rows that agree in all words but not in their tags slow it down."""


class Rows(NamedTuple):
    """Training rows, padded to those of the largest client: (clients, rows, ...)."""

    gram: jax.Array
    """x_j . x_k of all pairs: (clients * rows, clients * rows)"""
    own: jax.Array
    """the same within each client: (clients, rows, rows)"""
    y: jax.Array
    weight: jax.Array
    """1 / n_i, and 0 for what only fills up: (clients, rows, 1)"""


class HeldOut(NamedTuple):
    """A client's rows of a split: their words, their products with its training rows, and their tags."""

    words: sparse.csr_array
    own: np.ndarray
    y: np.ndarray


class TagRows(NamedTuple):
    """A federation of tags, laid out for descents in the space of its rows."""

    rows: Rows
    words: sparse.csr_array
    """of the training rows, padded: (clients * rows, words)"""
    splits: Mapping[str, Sequence[HeldOut]]


class LocalModels(NamedTuple):
    """The pure local models of a tolerance, and how their descents ended."""

    coefficients: np.ndarray
    """of the client's own training rows: (clients, rows, tags)"""
    norms: np.ndarray
    iterations: np.ndarray
    """from zero on"""
    losses: np.ndarray


class Trained(NamedTuple):
    """What a method ends with: the global model as a sum of all training rows, and each client's own part."""

    shared: np.ndarray
    """(clients, rows, tags)"""
    own: np.ndarray
    """coefficients of the client's own training rows, added to the global model: (clients, rows, tags)"""
    bias: np.ndarray | None = None
    """what every row of a client is given besides: (clients, tags)"""


def laid_out(federation: Federation) -> TagRows:
    """The rows of a federation of bytes (255: the word occurs) and tags."""
    clients, longest = len(federation), int(federation.train.sizes.max())
    tags = federation.train.y.shape[1]
    y, weight = np.zeros((clients, longest, tags), np.float32), np.zeros((clients, longest, 1), np.float32)
    words = []
    for client in range(clients):
        mine, targets = federation.train.of(client)
        y[client, : len(mine)], weight[client, : len(mine)] = targets, 1 / len(mine)
        words.append(_occurring(mine, longest))
    train = sparse.csr_array(sparse.vstack(words))
    own = np.stack([(mine @ mine.T).toarray() for mine in words])
    splits = {}
    for part in ("validation", "test"):
        held = [federation.split(part).of(client) for client in range(clients)]
        rows = [_occurring(x, len(x)) for x, _ in held]
        splits[part] = [
            HeldOut(x, (x @ mine.T).toarray(), np.asarray(labels))
            for x, mine, (_, labels) in zip(rows, words, held, strict=True)
        ]
    gram = (train @ train.T).toarray()
    return TagRows(Rows(*map(jnp.asarray, (gram, own, y, weight))), train, splits)


def _occurring(x: np.ndarray, rows: int) -> sparse.csr_array:
    """Ones where a word occurs, and rows without words up to so many."""
    there = sparse.csr_array(x)
    there.data = np.ones(len(there.data), np.float32)
    there.resize((rows, x.shape[1]))
    return there


def residual(z: jax.Array, rows: Rows) -> jax.Array:
    """The derivative of every f_i by the scores of its rows: (sigmoid(z) - y) / n_i."""
    return rows.weight * (jax.nn.sigmoid(z) - rows.y)


def adapted(z: jax.Array, rows: Rows, stepsize: jax.Array) -> tuple[jax.Array, jax.Array]:
    """INNER steps of every client from a common model: its scores there, and the way, in its own rows."""

    def step(_: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        z, way = now
        move = -stepsize * residual(z, rows)
        return z + rows.own @ move, way + move

    return lax.fori_loop(0, INNER, step, (z, jnp.zeros_like(z)))


def _flix(z: jax.Array, numbers: Mapping[str, jax.Array], rows: Rows, offset: jax.Array) -> jax.Array:
    """Algorithm 1: x <- x - lr mean_i alpha grad f_i(alpha x + (1 - alpha) x_i*); `offset`: the scores of x_i*."""
    alpha = numbers["alpha"]
    return -numbers["lr"] * alpha * residual(alpha * z + (1 - alpha) * offset, rows)


def _fomaml(z: jax.Array, numbers: Mapping[str, jax.Array], rows: Rows, offset: jax.Array) -> jax.Array:
    return -numbers["lr"] * residual(adapted(z, rows, numbers["inner_lr"])[0], rows)


def _reptile(z: jax.Array, numbers: Mapping[str, jax.Array], rows: Rows, offset: jax.Array) -> jax.Array:
    return numbers["server_lr"] * adapted(z, rows, numbers["lr"])[1]


STEPS = {"FLIX": _flix, "FOMAML": _fomaml, "Reptile": _reptile, "FedAvg": _reptile}
"""Every client's move of the global model, in its own rows, before the mean over clients."""


@partial(jax.jit, static_argnames=("method", "rounds"))
def _descents(
    method: str, numbers: Mapping[str, jax.Array], rows: Rows, offset: jax.Array, rounds: int
) -> tuple[jax.Array, jax.Array]:
    """(coefficients, scores of the training rows) of the global models of all candidates after some rounds."""
    clients, longest, tags = rows.y.shape
    count = len(next(iter(numbers.values())))

    def moves(z: jax.Array) -> jax.Array:
        z = z.reshape(clients, longest, count, tags)
        each = jax.vmap(lambda z, n: STEPS[method](z, n, rows, offset), in_axes=(2, 0), out_axes=2)(z, numbers)
        return each.reshape(clients * longest, count * tags) / clients

    def round(_: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, z = now
        u = moves(z)
        return a + u, z + rows.gram @ u

    zero = jnp.zeros((clients * longest, count * tags), rows.y.dtype)
    return lax.fori_loop(0, rounds, round, (zero, zero))


def trained(
    method: str, candidates: Sequence[Mapping[str, float]], tagged: TagRows, local: np.ndarray, rounds: int
) -> list[Trained]:
    """Run a method with each candidate's numbers; `local`: the coefficients of the pure local models, for FLIX."""
    rows, shape = tagged.rows, tagged.rows.y.shape
    offset = rows.own @ jnp.asarray(local, rows.y.dtype)
    devices, runs = jax.local_devices(), []
    for k, first in enumerate(range(0, len(candidates), TOGETHER)):
        group = candidates[first : first + TOGETHER]
        numbers = {name: jnp.asarray([c[name] for c in group], rows.y.dtype) for name in group[0]}
        put = jax.device_put((numbers, rows, offset), devices[k % len(devices)])
        runs.append((group, _descents(method, *put, rounds)))
    done = []
    for group, (a, z) in runs:
        parts = (np.asarray(v).reshape(*shape[:2], len(group), shape[2]) for v in (a, z))
        coefficients, scores = parts
        for place, candidate in enumerate(group):
            mine, own = coefficients[:, :, place], np.zeros(shape, np.float32)
            if method == "FLIX":
                mine, own = candidate["alpha"] * mine, (1 - candidate["alpha"]) * local
            elif method != "FedAvg":
                stepsize = jnp.asarray(candidate["inner_lr" if method == "FOMAML" else "lr"], rows.y.dtype)
                own = np.asarray(adapted(jnp.asarray(scores[:, :, place]), rows, stepsize)[1])
            done.append(Trained(mine, np.asarray(own)))
    return done


def local_models(rows: Rows, tolerances: Sequence[float]) -> list[LocalModels]:
    """Pure local models by gradient descent with a line search, from zero until |grad f_i| is below each tolerance.

    Each tolerance goes on from the one before. Rotating the words changes no step, so that a client of n rows needs n
    numbers per tag: those along its rows' principal axes.
    """
    squares, axes = np.linalg.eigh(np.asarray(rows.own, np.float64))
    lengths = np.sqrt(np.maximum(squares, 0))
    features = axes * lengths[:, None, :]
    inverse = np.where(lengths > 1e-6, 1 / np.maximum(lengths, 1e-6), 0)
    y, weight = (np.asarray(part, np.float64) for part in (rows.y, rows.weight))
    at, found, iterations = np.zeros(y.shape), [], np.zeros(len(y), np.int64)
    with precision("float64"):
        for tolerance in tolerances:
            descent = jax.device_get(_local_descents(at, features, y, weight, tolerance))
            at, iterations = descent.x, iterations + descent.iterations
            coefficients = ((axes * inverse[:, None, :]) @ at).astype(np.float32)
            found.append(LocalModels(coefficients, descent.grad_norm, iterations, descent.value))
    return found


@jax.jit
def _local_descents(
    begin: jax.Array, features: jax.Array, y: jax.Array, weight: jax.Array, tolerance: float
) -> Descent:
    def one(begin: jax.Array, features: jax.Array, y: jax.Array, weight: jax.Array) -> Descent:
        def value(w: jax.Array) -> jax.Array:
            z = features @ w
            return jnp.sum(weight * (jax.nn.softplus(z) - y * z))

        return line_search_descent(value, begin, tolerance, MOST)

    return jax.vmap(one)(begin, features, y, weight)


def measured(tagged: TagRows, model: Trained, split: str) -> dict[str, float]:
    """The clients' models on rows of a split: the mean over clients of the loss and of recall@5."""
    tags = model.shared.shape[2]
    shared = tagged.words.T @ model.shared.reshape(-1, tags)
    losses, recalls = [], []
    bias = np.zeros((len(model.own), tags)) if model.bias is None else model.bias
    for held, own, constant in zip(tagged.splits[split], model.own, bias, strict=True):
        z = held.words @ shared + held.own @ own + constant
        losses.append(float(np.mean(np.sum(np.logaddexp(0, z) - held.y * z, axis=1))))
        recalls.append(recall_at(TOP, z, held.y))
    return {"loss": float(np.mean(losses)), "recall": float(np.nanmean(recalls))}
