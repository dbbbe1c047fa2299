"""A federation as noisy quadratics with one curvature, whose best regime and error are known exactly.

What `plan` says where the bounds of Table 1 say nothing.
"""

from __future__ import annotations

import jax
import numpy as np

from polyfed import theory
from polyfed.core.trees import Tree
from polyfed.problem.batch_constants import gradient_variances
from polyfed.problem.problem import Problem


def as_quadratics(problem: Problem, own: np.ndarray, batch: int) -> theory.Clients:
    """The clients around their optima `own`, seen from zero, with the noise that batches have at these optima.

    The curvature is that of the way from the start to the optima: the mean of -grad f_i(0) . v_i over that of |v_i|^2.
    """
    start = jax.tree.map(lambda leaf: np.zeros_like(leaf[0]), problem.local_models().params)
    gradients = [problem.grad(start, name) for name in problem.federation.clients]
    pulls = np.concatenate([as_rows(jax.tree.map(lambda leaf: leaf[None], each)) for each in gradients])
    middle, lengths = own.mean(axis=0), float(np.mean(np.sum(own**2, axis=1)))
    along = float(np.mean(np.sum(-pulls * own, axis=1)))
    curvature = along / lengths if lengths > 0 else float(np.mean(problem.constants.smoothness))
    apart = float(np.mean(np.sum((own - middle) ** 2, axis=1)))
    points = jax.tree.map(lambda leaf: leaf[:, None], problem.local_models().params)
    noise = float(np.mean(gradient_variances(problem, points))) / batch
    return theory.Clients(len(own), curvature, float(middle @ middle), apart, noise)


def as_rows(params: Tree) -> np.ndarray:
    """Parameters with a leading axis as the rows of a matrix."""
    return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(params)], axis=1)
