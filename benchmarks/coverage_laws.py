"""Laws of federations whose true gains are known, and logistic regressions for all splits of a federation at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

METRICS = ("accuracy", "AUC", "log-loss")
FRESH_ROWS = 20_000
"""Rows by which models are judged under a law without integrals."""


@dataclass(frozen=True)
class Law:
    """How a federation comes about: clients with x of law N(0, I) and P(y = 1) = flips + (1 - 2 flips) / (1 + exp(-z)).

    z is x w + intercept, or that with curvature (x_1^2 - 1) added. The weights w of a client are those of the
    federation, with entries of law N(0, strength^2), plus its own, with entries of law N(0, distance^2). The clients
    beside the judged ones have the federation's weights, or with `others_differ` weights of their own.
    """

    name: str
    dimension: int = 8
    """Of the weights, the intercept included."""
    strength: float = 0.7
    distance: float = 0.4
    intercept: float | None = None
    """None: drawn as the weights are."""
    others: int = 1
    others_rows: int = 600
    others_differ: bool = False
    flips: float = 0.0
    curvature: float = 0.0
    ridge: float = 0.05
    pull: float = 0.0
    """Where positive, together means a client's own model with a ridge of this size around the global model."""
    test_share: float = 0.3
    in_tenths: bool = False
    """Whether each class is dealt out into ten parts, of which the first are for testing, so that few rows of a class
    are tested more often."""
    validation_share: float = 0.0
    """Rows that are in neither part."""


class Drawn(NamedTuple):
    """One judged client: its gains on all splits by metric, what the rows say, and the truth."""

    scores: list[np.ndarray]
    """By split: (3, test rows) labels, scores together, scores alone (before the logistic function)."""
    rows: list[np.ndarray]
    """By split: which of the client's rows these are."""
    train_rows: float
    """Outside the test part."""
    true: np.ndarray
    """(splits, metrics) the gain on fresh rows of each split's models."""
    expected: np.ndarray
    """(metrics) the same, averaged over models from fresh training sets of that size; NaN where none are drawn."""


class Rows(NamedTuple):
    """Rows, and the products of their features that Newton's method sums up."""

    features: np.ndarray
    products: np.ndarray
    labels: np.ndarray


def federation(law: Law, rows: int, splits: int, seed: int, judged: int = 1, fresh_sets: int = 0) -> list[Drawn]:
    """A federation with `judged` clients of so many rows, each drawn into test and training rows again and again."""
    rng = np.random.default_rng([seed, rows, judged])
    common = _weights(rng, law, law.strength, np.zeros(law.dimension))
    own = [_weights(rng, law, law.distance, common) for _ in range(judged)]
    others = [
        _draw(
            rng,
            law,
            _weights(rng, law, law.distance, common) if law.others_differ else common,
            law.others_rows // law.others,
        )
        for _ in range(law.others if law.others_rows else 0)
    ]
    clients = [_draw(rng, law, weights, rows) for weights in own]
    parts = [_parts(rng, law, client.labels, splits) for client in clients]
    training = [(part == 1).astype(float) for part in parts]
    beside = [(client, np.ones((splits, len(client.labels)))) for client in others]
    start = _newton([*beside, *zip(clients, training, strict=True)], law.ridge, splits, law.dimension)
    drawn = []
    for client, weights, part, mask in zip(clients, own, parts, training, strict=True):
        together, alone = _models(law, client, mask, start)
        fresh = _fresh(rng, law, weights) if law.curvature else None
        true = truth(together, weights, law, fresh) - truth(alone, weights, law, fresh)
        expected = np.full(len(METRICS), np.nan)
        if fresh_sets and judged == 1:
            expected = _expected(rng, law, weights, others, int(mask[0].sum()), fresh_sets)
        scored = np.stack(
            [np.broadcast_to(client.labels, part.shape), together @ client.features.T, alone @ client.features.T]
        )
        scores = [scored[:, split, part[split] == 2] for split in range(splits)]
        tested = [np.flatnonzero(own == 2) for own in part]
        drawn.append(Drawn(scores, tested, float(np.mean(np.sum(part != 2, axis=1))), true, expected))
    return drawn


def truth(models: np.ndarray, weights: np.ndarray, law: Law, fresh: Rows | None = None) -> np.ndarray:
    """(models, metrics) accuracy, AUC and minus the log-loss of linear models under the law, by integration.

    The score of a model and z are jointly normal. On a grid of the standardised score u the chance of class 1 is the
    mean of the law's over z given u (Gauss-Hermite); the metrics are sums over the grid. Where z is curved they are
    those of fresh rows.
    """
    if fresh is not None:
        return _on_fresh(models, fresh)
    slopes, offsets = models[:, :-1], models[:, -1:]
    spread = np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-12)
    along = (slopes @ weights[:-1])[:, None] / spread
    across = np.sqrt(np.maximum(np.sum(weights[:-1] ** 2) - along**2, 0))
    chance = np.zeros((len(models), len(GRID)))
    for node, share in zip(*NODES, strict=True):
        chance += share * _chance(law, weights[-1] + along * GRID + across * node)
    scores = offsets + spread * GRID
    positive = np.clip((GRID + STEP / 2 + offsets / spread) / STEP, 0, 1)  # the share of each cell with a score above 0
    accuracy = np.sum(DENSITY * (chance * positive + (1 - chance) * (1 - positive)), axis=1)
    log_likelihood = np.sum(DENSITY * (chance * log_expit(scores) + (1 - chance) * log_expit(-scores)), axis=1)
    ones, zeros = DENSITY * chance, DENSITY * (1 - chance)
    below = np.cumsum(zeros, axis=1) - zeros / 2
    auc = np.sum(ones * below, axis=1) / (ones.sum(axis=1) * zeros.sum(axis=1))
    return np.stack([accuracy, auc, log_likelihood], axis=1)


GRID = np.linspace(-6.5, 6.5, 261)
STEP = GRID[1] - GRID[0]
DENSITY = np.exp(-(GRID**2) / 2) / np.exp(-(GRID**2) / 2).sum()
NODES = np.polynomial.hermite_e.hermegauss(16)
NODES = (NODES[0], NODES[1] / NODES[1].sum())


def _on_fresh(models: np.ndarray, fresh: Rows) -> np.ndarray:
    scores, positive = models @ fresh.features.T, fresh.labels == 1
    accuracy = np.mean((scores > 0) == positive, axis=1)
    log_likelihood = np.mean(log_expit(np.where(positive, scores, -scores)), axis=1)
    zeros = np.sort(scores[:, ~positive], axis=1)
    auc = [np.mean(np.searchsorted(low, high)) / len(low) for low, high in zip(zeros, scores[:, positive], strict=True)]
    return np.stack([accuracy, auc, log_likelihood], axis=1)


def _chance(law: Law, z: np.ndarray) -> np.ndarray:
    return law.flips + (1 - 2 * law.flips) * expit(z)


def _weights(rng: np.random.Generator, law: Law, spread: float, centre: np.ndarray) -> np.ndarray:
    weights = centre + spread * rng.standard_normal(law.dimension)
    if law.intercept is not None:
        weights[-1] = law.intercept
    return weights


def _draw(rng: np.random.Generator, law: Law, weights: np.ndarray, rows: int) -> Rows:
    features = rng.standard_normal((rows, law.dimension))
    features[:, -1] = 1
    z = features @ weights + law.curvature * (features[:, 0] ** 2 - 1)
    labels = (rng.random(rows) < _chance(law, z)).astype(float)
    return Rows(features, (features[:, :, None] * features[:, None, :]).reshape(rows, -1), labels)


def _fresh(rng: np.random.Generator, law: Law, weights: np.ndarray) -> Rows:
    return _draw(rng, law, weights, FRESH_ROWS)


def _parts(rng: np.random.Generator, law: Law, labels: np.ndarray, splits: int) -> np.ndarray:
    """(splits, rows) 2 for a test row, 1 for a training row, 0 for validation; stratified by label.

    A class that is worth less than a row has one by chance, so that it is tested now and then.
    """
    parts = np.ones((splits, len(labels)), int)
    for split in range(splits):
        for label in (0, 1):
            own = rng.permutation(np.flatnonzero(labels == label))
            tenths = np.arange(len(own)) % 10 < 10 * law.test_share
            test = int(tenths.sum()) if law.in_tenths else _count(rng, len(own) * law.test_share)
            parts[split, own[:test]] = 2
            parts[split, own[test : test + _count(rng, len(own) * law.validation_share)]] = 0
    return parts


def _count(rng: np.random.Generator, share: float) -> int:
    return int(share + rng.random()) if share < 1 else round(share)


def _models(law: Law, client: Rows, mask: np.ndarray, together: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    alone = _newton([(client, mask)], law.ridge, len(mask), law.dimension)
    if law.pull:
        together = _newton([(client, mask)], law.pull, len(mask), law.dimension, together)
    return together, alone


def _expected(
    rng: np.random.Generator, law: Law, weights: np.ndarray, others: list[Rows], rows: int, sets: int
) -> np.ndarray:
    """The gain averaged over models from fresh training sets, the other clients as they are."""
    gains = np.zeros(len(METRICS))
    for _ in range(sets):
        client = _draw(rng, law, weights, rows)
        blocks = [(block, np.ones((1, len(block.labels)))) for block in [*others, client]]
        together, alone = _models(law, client, np.ones((1, rows)), _newton(blocks, law.ridge, 1, law.dimension))
        fresh = _fresh(rng, law, weights) if law.curvature else None
        gains += (truth(together, weights, law, fresh) - truth(alone, weights, law, fresh))[0] / sets
    return gains


def _newton(
    blocks: list[tuple[Rows, np.ndarray]], ridge: float, splits: int, dimension: int, centre: np.ndarray | None = None
) -> np.ndarray:
    """(splits, dimension) ridge-logistic weights, on the rows that each split's mask takes from each block."""
    weights = np.zeros((splits, dimension)) if centre is None else centre.copy()
    rows = np.sum([mask.sum(axis=1) for _, mask in blocks], axis=0)[:, None]
    for _ in range(30):
        gradient = ridge * (weights - (0 if centre is None else centre))
        hessian = np.tile(ridge * np.eye(dimension).ravel(), (splits, 1))
        for block, mask in blocks:
            chance = expit(weights @ block.features.T)
            gradient = gradient + ((chance - block.labels) * mask) @ block.features / rows
            hessian = hessian + (chance * (1 - chance) * mask) @ block.products / rows
        step = np.linalg.solve(hessian.reshape(splits, dimension, dimension), gradient[..., None])[..., 0]
        length = np.linalg.norm(step, axis=1, keepdims=True)
        weights = weights - step * np.minimum(1, 3 / np.maximum(length, 1e-12))  # no step overshoots far
        if np.max(length) < 1e-7:
            break
    return weights
