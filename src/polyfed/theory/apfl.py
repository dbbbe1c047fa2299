"""APFL (Deng, Kamani, Mahdavi 2020): the bound on a mixture's risk, its best mixing weight, and how unlike clients are.

The personal model is alpha_i v_i + (1 - alpha_i) w: here alpha_i is the weight of the client's OWN model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import InverseStep
from polyfed.theory.inputs import Vector, clients, number


@dataclass(frozen=True, kw_only=True)
class ApflRisk:
    """The quantities of Theorem 1, each one number or one for each client.

    Only `rows` is known; the others have to be estimated, and the theorem does not name its constant C. The bound
    therefore says in which direction alpha should move, not what the risk will be.
    """

    rows: ArrayLike
    """m_i, the training rows of every client: a vector, since their sum m enters, too"""
    global_risk: ArrayLike
    """the global model's loss on all training rows"""
    local_risk: ArrayLike
    """the least loss on the client's distribution; a validation loss of the client's own model lies above it"""
    divergence: ArrayLike
    """the L1 distance of the client's distribution from the mean one; `label_divergence` bounds it from below"""
    disagreement: ArrayLike = 0.0
    """lambda_H of eq. (2): how much two models of the class may differ on the client's rows"""
    loss_bound: float = 1.0
    """B"""
    lipschitz: float = 1.0
    """G"""
    dimension: float = 1.0
    """d, the VC dimension"""
    confidence: float = 0.05
    """delta: the bound holds with probability 1 - delta"""
    constant: float = 1.0
    """C"""

    @property
    def parts(self) -> tuple[Vector, Vector]:
        """The brackets of Theorem 1: what the global model costs each client, and what its own does."""
        (counts,) = clients(rows=self.rows)
        _, shared, own, distance, apart = clients(
            rows=self.rows,
            global_risk=self.global_risk,
            local_risk=self.local_risk,
            divergence=self.divergence,
            disagreement=self.disagreement,
        )
        B, G, C, d = (
            number(name, getattr(self, name)) for name in ("loss_bound", "lipschitz", "constant", "dimension")
        )
        spread = d + np.log(1 / number("confidence", self.confidence))
        shared = shared + B * distance + C * np.sqrt(spread / counts.sum())
        return shared, own + 2 * C * np.sqrt(spread / counts) + G * apart


def apfl_bound(alpha: ArrayLike, risk: ApflRisk) -> Vector:
    """Theorem 1: a bound on the risk of the mixture on each client's distribution.

    2 (1 - alpha)^2 (global_risk + B divergence + C sqrt((d + log 1/delta) / m))
    + 2 alpha^2 (local_risk + 2 C sqrt((d + log 1/delta) / m_i) + G disagreement).
    """
    shared, own = risk.parts
    (alpha,) = clients(alpha=alpha)
    return 2 * (1 - alpha) ** 2 * shared + 2 * alpha**2 * own


def apfl_mixing_weight(risk: ApflRisk) -> Vector:
    """Eq. (3): the alpha_i that minimises `apfl_bound`; an estimate, since most of its inputs are.

    Near 1 where the client is unlike the others, smaller where it has few rows, and 1/2 where both brackets are zero.
    """
    shared, own = risk.parts
    total = shared + own
    return np.where(total > 0, shared / np.where(total > 0, total, 1.0), 0.5)


def apfl_gain_bound(alpha: ArrayLike, risk: ApflRisk, lower: float) -> Vector:
    """Corollary 3: a bound on the mixture's risk less that of the client's own trained model.

    `apfl_bound` less local_risk + C_2 sqrt((d + log 1/delta)/m_i), where `lower` is C_2, the constant of the lower
    bound on what training on m_i rows misses. Below 0 the mixture is better. The paper has 2 alpha^2 C_1 before the
    square root where its own Theorem 1 gives 4 alpha^2 C_1.
    """
    counts, own = clients(rows=risk.rows, local_risk=risk.local_risk)
    spread = risk.dimension + np.log(1 / number("confidence", risk.confidence))
    return apfl_bound(alpha, risk) - own - number("constant", lower) * np.sqrt(spread / counts)


def label_divergence(counts: ArrayLike) -> Vector:
    """The L1 distance of each client's label frequencies from the mean client's: `counts` has a row per client.

    An estimate: of the distance between the distributions of inputs and labels, which it bounds from below, and from a
    sample, which makes it larger than it is for clients with few rows.
    """
    counts = np.asarray(counts, np.float64)
    if counts.ndim != 2 or not (np.isfinite(counts) & (counts >= 0)).all() or not (counts.sum(axis=1) > 0).all():
        raise PolyfedError("label_divergence needs a row of counts per client, none of them negative or all zero")
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    return np.abs(frequencies - frequencies.mean(axis=0)).sum(axis=1)


def gradient_diversity(gradients: ArrayLike) -> Vector:
    """zeta_i of Definition 2: the largest |grad F(w) - grad f_i(w)|^2, from gradients at some points.

    `gradients` has the shape (points, clients, parameters), or (clients, parameters) for one point. An estimate from
    below: the definition takes the supremum over all w. zeta, the sum over clients, is `.sum()` of it.
    """
    points = np.asarray(gradients, np.float64)
    points = points[None] if points.ndim == 2 else points
    if points.ndim != 3 or not np.isfinite(points).all():
        raise PolyfedError(
            f"gradients must be finite, of shape (points, clients, parameters), found shape {np.shape(gradients)}"
        )
    return np.max(np.sum((points - points.mean(axis=1, keepdims=True)) ** 2, axis=2), axis=0)


def optimality_gap(local_models: ArrayLike, global_model: ArrayLike) -> Vector:
    """Delta_i = |v_i* - w*|^2 (eq. 11), from the pure local models, a row per client, and the minimiser of the mean.

    As exact as the models are: minimisers of the training objectives give the Delta_i of Theorem 3.
    """
    local, shared = np.asarray(local_models, np.float64), np.asarray(global_model, np.float64)
    if local.ndim != 2 or shared.shape != local.shape[1:]:
        raise PolyfedError(
            f"a local model per client and a global one are needed, found shapes {local.shape} and {shared.shape}"
        )
    return np.sum((local - shared) ** 2, axis=1)


def apfl_offset(L: ArrayLike, mu: ArrayLike, local_steps: int, any_alpha: bool = False) -> float:
    """a = max(128 kappa, tau) of Theorems 2 and 3, with kappa the largest L_i over the smallest mu_i.

    With `any_alpha` that of Theorem 4, max(64 kappa, tau).
    """
    L_i, mu = clients(L=L, mu=mu)
    if not mu.min() > 0:
        raise PolyfedError("mu must be above 0 for every client: the theorems on APFL's averages need strong convexity")
    return float(max((64 if any_alpha else 128) * L_i.max() / mu.min(), local_steps))


def apfl_schedule(L: ArrayLike, mu: ArrayLike, local_steps: int, any_alpha: bool = False) -> InverseStep:
    """eta_t = 16 / (mu (t + a)), the stepsize of Theorems 2 and 3, as an algorithm's `lr`.

    With `any_alpha` that of Theorem 4, 8 / (mu (t + a)).
    """
    offset = apfl_offset(L, mu, local_steps, any_alpha)
    return InverseStep((8 if any_alpha else 16) / float(np.min(np.asarray(mu, np.float64))), offset)
