"""FLIX Fig. 4: sines of two kinds, fitted by mixtures of small nets; gradient descent with a line search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from polyfed import data, models
from polyfed.core import trees
from polyfed.core.randomness import Purpose, purpose_key
from polyfed.core.startup import start
from polyfed.core.trees import Tree
from polyfed.papers.flix.convex import PAPER
from polyfed.papers.flix.line_search import GROWTH, SUFFICIENT, Descent, line_search_descent
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, Outcome, Progress, experiment
from polyfed.problem.problem import precision

TOLERANCE = 1e-2
FARTHER = 1e-3
"""A tolerance that pure local models are trained on to, to see what stopping at the paper's costs them."""
DRAMATIC = 0.5
"""The share of an extreme's error that counts as a dramatic improvement on it."""
NETWORK = models.mlp((40, 40), "tanh").build((1,), None)

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much of the experiment is run."""

    splits: tuple[tuple[int, int], ...]
    """The sizes of the two groups; the smaller first."""
    alphas: tuple[float, ...]
    draws: int
    """How often the two sines, the points and the initial net are drawn."""
    points: int = 50
    test_points: int = 2000


FULL = Scale(((30, 170), (50, 150), (70, 130), (90, 110)), tuple(k / 10 for k in range(1, 11)), 3)
QUICK = Scale(((6, 34), (18, 22)), (0.1, 0.3, 0.5, 0.7, 0.9, 1.0), 1)


class Tasks(NamedTuple):
    """Every client's training and test points, and which sine they are of."""

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
def pure_local(begin: Tree, x: jax.Array, y: jax.Array) -> Descent:
    """x_i* of every client: a descent on f_i from the common start."""
    return jax.vmap(lambda x, y: line_search_descent(lambda p: error(p, x, y), begin, TOLERANCE))(x, y)


@jax.jit
def trained_on(begin: Tree, x: jax.Array, y: jax.Array) -> Descent:
    """Descents on f_i from each client's own start to the smaller tolerance."""
    return jax.vmap(lambda p, x, y: line_search_descent(lambda q: error(q, x, y), p, FARTHER))(begin, x, y)


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


def tasks(split: tuple[int, int], scale: Scale, seed: int) -> Tasks:
    """A federation of sines, stacked: all clients have as many points."""
    found = data.sines(split, scale.points, test_points=scale.test_points, seed=seed)
    clients = len(found)
    columns = found.columns
    return Tasks(
        jnp.asarray(found.train.x).reshape(clients, scale.points, 1),
        jnp.asarray(found.train.y).reshape(clients, scale.points),
        jnp.asarray(found.test.x).reshape(clients, scale.test_points, 1),
        jnp.asarray(found.test.y).reshape(clients, scale.test_points),
        np.asarray(columns["group"]),
        " and ".join(f"({columns['amplitude'][i]:.2f}, {columns['phase'][i]:.2f})" for i in (0, clients - 1)),
    )


@dataclass
class Found:
    """What the descents of all draws and splits gave."""

    rows: list[Row] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """The gradient norms at which pure local models were left."""
    pairs: dict[str, str] = field(default_factory=dict)
    """The two sines of a draw."""
    farther: list[tuple[float, float]] = field(default_factory=list)
    """By draw: the average test error of some pure local models, and of the same trained on."""


def measure(scale: Scale, progress: Progress) -> Found:
    """All descents: in every draw and split the pure local models, then the server's at every alpha."""
    found = Found()
    total = scale.draws * len(scale.splits) * (len(scale.alphas) + 1)
    for seed in range(scale.draws):
        for split in scale.splits:
            task, facts = tasks(split, scale, seed), {"split": _name(split), "draw": seed + 1}

            def tell(what: str, facts: Row = facts) -> None:
                progress(f"{facts['split']} clients, draw {facts['draw']}: {what}", len(found.rows), total)

            tell("pure local models")
            begin = initial(seed)
            local = jax.block_until_ready(pure_local(begin, task.x, task.y))
            found.norms += np.asarray(local.grad_norm).tolist()
            found.rows.append(facts | _row(task, 0.0, begin, local.x, local))
            for alpha, model in _solved(begin, local.x, task, scale.alphas):
                tell(f"alpha = {alpha:g}")
                found.rows.append(facts | _row(task, alpha, model.x, local.x, model))
            if split == scale.splits[0]:
                found.pairs[f"draw {seed + 1}"] = task.pairs
                found.farther.append(_farther(local.x, task))
    progress("done", total, total)
    return found


def _solved(begin: Tree, own: Tree, task: Tasks, alphas: Sequence[float]) -> list[tuple[float, Descent]]:
    """The server's descent at each alpha; they run side by side on the devices."""
    devices = jax.local_devices()
    runs = []
    for k, alpha in enumerate(alphas):
        put = jax.device_put((begin, own, jnp.asarray(alpha), task.x, task.y), devices[k % len(devices)])
        runs.append(flix(*put))
    return [(alpha, jax.device_put(run, devices[0])) for alpha, run in zip(alphas, runs, strict=True)]


def _row(task: Tasks, alpha: float, params: Tree, own: Tree, model: Descent) -> Row:
    """A point of the figure; of pure local models (alpha = 0), the largest gradient norm and the most iterations."""
    test = np.asarray(errors(params, own, alpha, task.test_x, task.test_y))
    return {
        "alpha": alpha,
        "test_error": float(test.mean()),
        "test_error_smaller_group": float(test[task.group == 0].mean()),
        "test_error_larger_group": float(test[task.group == 1].mean()),
        "train_error": float(jnp.mean(model.value)),
        "grad_norm": float(jnp.max(model.grad_norm)) / (alpha or 1.0),
        "iterations": int(jnp.max(model.iterations)),
    }


def _farther(own: Tree, task: Tasks) -> tuple[float, float]:
    """The average test error of every tenth client's pure local model, before and after it is trained on."""
    begin, x, y, test_x, test_y = jax.tree.map(lambda leaf: leaf[::10], (own, task.x, task.y, task.test_x, task.test_y))
    before, after = (jax.vmap(error)(params, test_x, test_y) for params in (begin, trained_on(begin, x, y).x))
    return float(jnp.mean(before)), float(jnp.mean(after))


@experiment(
    "flix/fig4",
    paper=PAPER,
    title="Two kinds of sines, fitted by mixtures of small nets, by alpha",
    caption=(
        "Average test error (MSE) against alpha for clients that fit one of two sines, by the sizes of the two groups; "
        "alpha = 0 is the pure local models, alpha = 1 one model for all. Below, the same over each group's clients."
    ),
    data=(
        "a sin(x + b) with a from [0.1, 0.5] and b from [0, 2 pi], one pair for each of two groups of clients; "
        "50 training and 2000 test points a client, uniform on [-5, 5], without noise. Generated."
    ),
    differences=(
        "Three draws of the two sines, the points and the initial net, where the paper shows one. Pure local models "
        "and the server start from the same net. The paper does not say how the net is initialised: here weights and "
        "biases are uniform within 1/sqrt(inputs), as biases of zero would put every first-layer unit's bend at x = 0. "
        "Nor which line search: here Armijo's with constant 1e-4, halving, begun at 1.25 times the last step. "
        "alpha = 0 is shown too. In the stopping rule grad f_i(T_i(x)) is read as the gradient of f_i at T_i(x), "
        "without the factor alpha."
    ),
)
def fig4(quick: bool, progress: Progress) -> Outcome:
    """A mixture generalises better than pure local models and than one global model."""
    start()
    scale = QUICK if quick else FULL
    with precision("float64"):
        found = measure(scale, progress)
    return Outcome(
        rows=found.rows,
        claims=claims(found.rows),
        figure=_figure(found.rows, scale),
        settings={
            "clients": [_name(split) for split in scale.splits],
            "alpha": scale.alphas,
            "net": "1-40-40-1, tanh",
            "loss": "mean squared error",
            "training points a client": scale.points,
            "test points a client": scale.test_points,
            "method": "gradient descent with a line search, all rows, float64",
            "line search": f"Armijo {SUFFICIENT:g}, halving, from {GROWTH:g} times the last step; the first from 1",
            "tolerance": TOLERANCE,
            "draws (seeds from 0)": scale.draws,
            "amplitude and phase of the groups": found.pairs,
        },
        notes=_notes(found),
    )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What the paper reads off its figure, on means over the draws. Rows of alpha = 0 are the pure local models."""
    splits = list(dict.fromkeys(row["split"] for row in rows))
    made, shares = [], []
    for split in splits:
        ones = [row for row in rows if row["split"] == split]
        draws = [_curve([row for row in ones if row["draw"] == d]) for d in sorted({row["draw"] for row in ones})]
        mean = _curve(ones)
        best = _best(mean)
        alone = sum(curve[_best(curve)] < min(curve[0.0], curve[1.0]) for curve in draws)
        made.append(
            Claim(
                f"{split} clients: some alpha between 0 and 1 has a lower average test error than the pure local "
                "models and than one global model.",
                f"{mean[best]:.2e} at alpha = {best:g}, {mean[0.0]:.2e} pure local, {mean[1.0]:.2e} global; "
                f"{alone} of {len(draws)} draws show it alone",
                mean[best] < min(mean[0.0], mean[1.0]),
            )
        )
        shares.append((mean[best] / mean[1.0], mean[best] / mean[0.0]))
    for what, of in zip(("one global model", "the pure local models"), zip(*shares, strict=True), strict=True):
        made.append(
            Claim(
                f"The best alpha can outperform {what} dramatically (in some split, by {DRAMATIC:.0%} or more).",
                "its error is "
                + ", ".join(f"{s:.0%} ({name})" for s, name in zip(of, splits, strict=True))
                + " of that",
                min(of) <= DRAMATIC,
            )
        )
    return made


def _curve(rows: Sequence[Row]) -> dict[float, float]:
    """The mean test error by alpha."""
    alphas = sorted({row["alpha"] for row in rows})
    return {alpha: float(np.mean([row["test_error"] for row in rows if row["alpha"] == alpha])) for alpha in alphas}


def _best(curve: dict[float, float]) -> float:
    """The best alpha strictly between 0 and 1."""
    return min((alpha for alpha in curve if 0 < alpha < 1), key=curve.__getitem__)


def _notes(found: Found) -> list[str]:
    server = [row["grad_norm"] for row in found.rows if row["alpha"] > 0]
    most = [max(row["iterations"] for row in found.rows if (row["alpha"] == 0) == own) for own in (True, False)]
    before, after = (", ".join(f"{pair[i]:.2e}" for pair in found.farther) for i in (0, 1))
    return [
        f"{_reached(found.norms)} pure local models ended with |grad f_i| < {TOLERANCE:g} (median "
        f"{np.median(found.norms):.2e}), after at most {most[0]:,} iterations; {_reached(server)} server "
        f"models met the paper's rule (median {np.median(server):.2e}), after at most {most[1]:,}.",
        f"A tolerance of {TOLERANCE:g} stops early. On every tenth client of {found.rows[0]['split']} the average test "
        f"error of the pure local models is {before} in the draws; trained on to {FARTHER:g}, it is {after}.",
    ]


def _reached(norms: Sequence[float]) -> str:
    return f"{sum(norm < TOLERANCE for norm in norms):,} of {len(norms):,}"


def _figure(rows: Sequence[Row], scale: Scale) -> Figure:
    palette = style.colours(range(1, scale.draws + 1))
    quantities = {
        "test_error": "MSE, all clients",
        "test_error_smaller_group": "MSE, smaller group",
        "test_error_larger_group": "MSE, larger group",
    }

    def panel(split: str, quantity: str) -> style.Panel:
        curves = []
        for draw, colour in palette.items():
            ones = [row for row in rows if (row["split"], row["draw"]) == (split, draw)]
            x, y = ([row[name] for row in ones] for name in ("alpha", quantity))
            curves.append(style.Curve(f"draw {draw}", x, y, colour, marker="o"))
        return style.Panel(f"{split} clients", curves, quantities[quantity])

    panels = [[panel(_name(split), quantity) for split in scale.splits] for quantity in quantities]
    return style.small_multiples(panels, x_label="α (0: pure local, 1: global)")


def _name(split: tuple[int, int]) -> str:
    return "/".join(map(str, split))
