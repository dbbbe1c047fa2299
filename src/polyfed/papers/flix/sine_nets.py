"""Small nets that fit sines of two kinds: pure local models, and FLIX's server at every alpha."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import data, models
from polyfed.core import trees
from polyfed.core.randomness import Purpose, purpose_key
from polyfed.core.trees import Tree
from polyfed.papers.flix.line_search import Descent, line_search_descent
from polyfed.papers.shared.experiment import ExperimentProgress, Row

TOLERANCE = 1e-2
"""The paper's, of the server's models."""
NETWORK = models.mlp((40, 40), "tanh").build((1,), None)


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run."""

    splits: tuple[tuple[int, int], ...]
    """The sizes of the two groups; the smaller first."""
    alphas: tuple[float, ...]
    draws: int
    """How often the two sines, the points and the initial net are drawn."""
    stationary: float = 1e-4
    """The gradient norm at which pure local models stop. At the paper's their errors are twenty times as large."""
    points: int = 50
    test_points: int = 2000


FULL = Scale(((30, 170), (50, 150), (70, 130), (90, 110)), tuple(k / 10 for k in range(1, 11)), 20)
QUICK = Scale(((6, 34), (18, 22)), (0.1, 0.3, 0.5, 0.7, 0.9, 1.0), 1, TOLERANCE)


class SineClients(NamedTuple):
    """Every client's training and test points, and the group that it belongs to."""

    x: jax.Array
    y: jax.Array
    test_x: jax.Array
    test_y: jax.Array
    group: np.ndarray
    pairs: str
    """Amplitude and phase of both groups."""


def error(params: Tree, x: jax.Array, y: jax.Array) -> jax.Array:
    """f_i: the mean squared error of the net, without a factor of one half."""
    return jnp.mean(jnp.square(NETWORK.apply(params, x) - y))


@jax.jit
def errors(params: Tree, own: Tree, alpha: jax.Array | float, x: jax.Array, y: jax.Array) -> jax.Array:
    """f_i(alpha params + (1 - alpha) x_i*) of every client."""
    return jax.vmap(lambda own, x, y: error(trees.mix(alpha, params, own), x, y))(own, x, y)


@jax.jit
def pure_local(begin: Tree, x: jax.Array, y: jax.Array, tolerance: jax.Array | float = TOLERANCE) -> Descent:
    """x_i* of every client: a descent on f_i from the common start."""
    return jax.vmap(lambda x, y: line_search_descent(lambda p: error(p, x, y), begin, tolerance))(x, y)


@jax.jit
def flix(begin: Tree, own: Tree, alpha: jax.Array, x: jax.Array, y: jax.Array) -> Descent:
    """A descent on (1/n) sum_i f_i(alpha x + (1 - alpha) x_i*) until |(1/n) sum_i grad f_i(T_i(x))| < 1e-2.

    The objective's own gradient is alpha times the one in the paper's rule. FLIX Sec. 10.
    """
    return line_search_descent(lambda p: jnp.mean(errors(p, own, alpha, x, y)), begin, alpha * TOLERANCE)


def initial(seed: int) -> Tree:
    """Weights and biases uniform within 1/sqrt(inputs of the layer)."""
    keys = iter(jax.random.split(purpose_key(seed, Purpose.INIT), 6))

    def draw(leaf: jax.Array, bound: float) -> jax.Array:
        return jax.random.uniform(next(keys), leaf.shape, leaf.dtype, -bound, bound)

    layers = jax.eval_shape(NETWORK.init, jax.random.key(0))
    return [{name: draw(leaf, layer["w"].shape[0] ** -0.5) for name, leaf in layer.items()} for layer in layers]


def sine_clients(split: tuple[int, int], scale: Scale, seed: int) -> SineClients:
    """A federation of sines, stacked: all clients have the same number of points."""
    federation = data.sines(split, scale.points, test_points=scale.test_points, seed=seed)
    clients = len(federation)
    columns = federation.columns
    return SineClients(
        jnp.asarray(federation.train.x).reshape(clients, scale.points, 1),
        jnp.asarray(federation.train.y).reshape(clients, scale.points),
        jnp.asarray(federation.test.x).reshape(clients, scale.test_points, 1),
        jnp.asarray(federation.test.y).reshape(clients, scale.test_points),
        np.asarray(columns["group"]),
        " and ".join(f"({columns['amplitude'][i]:.2f}, {columns['phase'][i]:.2f})" for i in (0, clients - 1)),
    )


@dataclass
class Measurements:
    """What the descents of all draws and splits gave."""

    rows: list[Row] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """The gradient norms at which pure local models ended."""
    pairs: dict[str, str] = field(default_factory=dict)
    """The two sines of a draw."""
    early: list[tuple[float, float]] = field(default_factory=list)
    """By draw: the average test error of some pure local models, stopped by the paper's rule and as they are."""


def measure(scale: Scale, progress: ExperimentProgress) -> Measurements:
    """All descents: in every draw and split the pure local models, then the server's at every alpha."""
    measurements = Measurements()
    total = scale.draws * len(scale.splits) * (len(scale.alphas) + 1)
    for seed in range(scale.draws):
        for split in scale.splits:
            clients, facts = sine_clients(split, scale, seed), {"split": split_name(split), "draw": seed + 1}

            def tell(what: str, facts: Row = facts) -> None:
                progress(f"{facts['split']} clients, draw {facts['draw']}: {what}", len(measurements.rows), total)

            tell("pure local models")
            begin = initial(seed)
            local = jax.block_until_ready(pure_local(begin, clients.x, clients.y, scale.stationary))
            measurements.norms += np.asarray(local.grad_norm).tolist()
            measurements.rows.append(facts | _row(clients, 0.0, begin, local.x, local))
            for alpha, model in _solved(begin, local.x, clients, scale.alphas):
                tell(f"alpha = {alpha:g}")
                measurements.rows.append(facts | _row(clients, alpha, model.x, local.x, model))
            if split == scale.splits[0]:
                measurements.pairs[f"draw {seed + 1}"] = clients.pairs
                measurements.early.append(_early(begin, local.x, clients))
    progress("done", total, total)
    return measurements


def _solved(begin: Tree, own: Tree, clients: SineClients, alphas: Sequence[float]) -> list[tuple[float, Descent]]:
    """The server's descent at each alpha; they run side by side on the devices."""
    devices = jax.local_devices()
    runs = []
    for k, alpha in enumerate(alphas):
        put = jax.device_put((begin, own, jnp.asarray(alpha), clients.x, clients.y), devices[k % len(devices)])
        runs.append(flix(*put))
    return [(alpha, jax.device_put(run, devices[0])) for alpha, run in zip(alphas, runs, strict=True)]


def _row(clients: SineClients, alpha: float, params: Tree, own: Tree, model: Descent) -> Row:
    """A point of the figure. For pure local models (alpha = 0), the largest gradient norm and the most iterations."""
    test = np.asarray(errors(params, own, alpha, clients.test_x, clients.test_y))
    return {
        "alpha": alpha,
        "test_error": float(test.mean()),
        "test_error_smaller_group": float(test[clients.group == 0].mean()),
        "test_error_larger_group": float(test[clients.group == 1].mean()),
        "train_error": float(jnp.mean(model.value)),
        "grad_norm": float(jnp.max(model.grad_norm)) / (alpha or 1.0),
        "iterations": int(jnp.max(model.iterations)),
    }


def _early(begin: Tree, own: Tree, clients: SineClients) -> tuple[float, float]:
    """The average test error of every tenth client's pure local model, stopped by the paper's rule and as it is."""
    own, x, y, test_x, test_y = jax.tree.map(
        lambda leaf: leaf[::10], (own, clients.x, clients.y, clients.test_x, clients.test_y)
    )
    early, late = (jax.vmap(error)(params, test_x, test_y) for params in (pure_local(begin, x, y).x, own))
    return float(jnp.mean(early)), float(jnp.mean(late))


def split_name(split: tuple[int, int]) -> str:
    return "/".join(map(str, split))
