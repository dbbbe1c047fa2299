"""The FLIX objective (1/n) sum_i f_i(alpha_i x + (1 - alpha_i) x_i*) as one function of x, for reference solutions.

For a model that is linear in its parameters the output of row r is alpha_c a_r.x + (1 - alpha_c) a_r.x_c*, c being the
row's client. One matrix product then serves all clients, and along a line the outputs move on a line, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batch, Examples, Objective

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem
    from polyfed.problem.task import Task

Unravel = Callable[[jax.Array], Tree]
"""From a flat vector to the parameters."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
DENSE = 3 * 10**7
"""The most numbers that a Hessian's computation may hold at once: rows x outputs x parameters."""


@partial(jax.tree_util.register_dataclass, data_fields=["starts", "sizes", "examples"], meta_fields=["task", "longest"])
@dataclass(frozen=True)
class TrainingRows:
    """A problem's training rows, and what a row costs: all that its clients' objectives follow from."""

    task: Task
    longest: int
    """the rows of the largest client"""
    starts: jax.Array
    sizes: jax.Array
    examples: Examples

    @classmethod
    def of(cls, problem: Problem) -> TrainingRows:
        part, examples = problem.federation.train, Examples(*map(jnp.asarray, problem.examples("train")))
        starts, sizes = jnp.asarray(part.offsets[:-1]), jnp.asarray(part.sizes)
        return cls(problem.task, int(np.max(part.sizes)), starts, sizes, examples)

    def objective(self, client: jax.Array) -> Objective:
        """A client's objective over the whole training data."""
        place, zero = (self.starts[client], self.sizes[client], self.longest), jnp.asarray(0)
        return Objective(self.task, self.examples, *place, client, zero, jax.random.key(0))


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "alpha", "local"], meta_fields=[])
@dataclass(frozen=True)
class GeneralMixture:
    """The objective of any model, client by client. `local`: the pure local models, with a leading client axis."""

    rows: TrainingRows
    alpha: jax.Array
    local: Tree

    def value(self, x: Tree) -> jax.Array:
        return jnp.mean(self._over_clients(lambda i: self.rows.objective(i).value(self._deployed(x, i))))

    def gradient(self, x: Tree) -> Tree:
        def of_client(i: jax.Array) -> Tree:
            return trees.scale(self.alpha[i], self.rows.objective(i).grad(self._deployed(x, i)))

        each = self._over_clients(of_client)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)

    def hessian(self, x: jax.Array, unravel: Unravel) -> jax.Array | None:
        """None: only its products are known."""
        return None

    def divergence(self, end: Tree, v: Tree) -> jax.Array:
        """The integral over s in [0, 1] of (1 - s) v' H(end + s v) v, by Gauss-Legendre."""

        def curvature(s: jax.Array) -> jax.Array:
            return trees.dot(v, jax.jvp(self.gradient, (trees.add(end, trees.scale(s, v)),), (v,))[1])

        nodes, weights = jnp.asarray(0.5 * (NODES + 1)), jnp.asarray(0.5 * WEIGHTS)
        return jnp.vdot(weights * (1 - nodes), jax.lax.map(curvature, nodes))

    def _over_clients(self, function: Callable[[jax.Array], Tree]) -> Tree:
        return jax.vmap(function)(jnp.arange(len(self.alpha)))

    def _deployed(self, x: Tree, client: jax.Array) -> Tree:
        own = x if self.local is None else jax.tree.map(lambda leaf: jnp.asarray(leaf)[client], self.local)
        return trees.mix(self.alpha[client], x, own)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["examples", "share", "scale", "own", "alpha2", "pull", "rest"],
    meta_fields=["task"],
)
@dataclass(frozen=True)
class LinearMixture:
    """The objective of a linear model, all rows at once."""

    task: Task
    examples: Examples
    share: jax.Array
    """each row's weight in the objective, 1 / (n n_i)"""
    scale: jax.Array
    """alpha of each row's client"""
    own: jax.Array
    """what the pure local model adds to each row's output"""
    alpha2: jax.Array
    """the mean of alpha_i^2; the ridge is alpha2/2 |x|^2 + pull.x + rest"""
    pull: Tree
    rest: jax.Array

    def value(self, x: Tree) -> jax.Array:
        outputs, targets = self._outputs(x)
        ridge = 0.5 * self.alpha2 * trees.squared_norm(x) + trees.dot(self.pull, x) + self.rest
        return jnp.vdot(self.share, self.task.row_loss(outputs, targets)) + self.task.l2 * ridge

    def gradient(self, x: Tree) -> Tree:
        return jax.grad(self.value)(x)

    def hessian(self, x: jax.Array, unravel: Unravel) -> jax.Array | None:
        """The matrix at the flat vector x; None where it is too large to be formed at once."""
        outputs = jax.eval_shape(lambda x: self._outputs(unravel(x))[0], x)
        if outputs.size * x.size > DENSE:
            return None
        flat = jax.grad(lambda x: self.value(unravel(x)))
        return jax.vmap(lambda column: jax.jvp(flat, (x,), (column,))[1])(jnp.eye(x.size))

    def divergence(self, end: Tree, v: Tree) -> jax.Array:
        """The integral over s in [0, 1] of (1 - s) v' H(end + s v) v, by Gauss-Legendre: two matrix products in all."""
        start, targets = self._outputs(end)
        move = jax.jvp(lambda x: self._outputs(x)[0], (end,), (v,))[1]

        def loss(s: jax.Array) -> jax.Array:
            return jnp.vdot(self.share, self.task.row_loss(start + s * move, targets))

        def curvature(s: jax.Array) -> jax.Array:
            slope = lambda s: jax.jvp(loss, (s,), (jnp.ones_like(s),))[1]  # noqa: E731
            return jax.jvp(slope, (s,), (jnp.ones_like(s),))[1]

        nodes, weights = jnp.asarray(0.5 * (NODES + 1)), jnp.asarray(0.5 * WEIGHTS)
        bend = jax.lax.map(curvature, nodes) + self.task.l2 * self.alpha2 * trees.squared_norm(v)
        return jnp.vdot(weights * (1 - nodes), bend)

    def _outputs(self, x: Tree) -> tuple[jax.Array, jax.Array]:
        """Every row's output under its client's mixture, and the targets."""
        outputs, targets = self.task.predict(x, self.examples, Batch(None, self.share))
        scale = self.scale.reshape(-1, *(1,) * (outputs.ndim - 1))
        return scale * outputs + self.own, targets


Mixture = GeneralMixture | LinearMixture


def mixture_objective(problem: Problem, alpha: np.ndarray, local: Tree) -> Mixture:
    """The objective in its fastest form; `local` may be None where every alpha is 1."""
    rows = TrainingRows.of(problem)
    local = None if local is None else jax.tree.map(jnp.asarray, local)
    if problem.model.design is None:
        return GeneralMixture(rows, jnp.asarray(alpha), local)
    sizes = problem.federation.train.sizes
    share = jnp.asarray(np.repeat(1.0 / (len(problem) * sizes), sizes))
    own, pull, rest = jnp.zeros(()), jax.tree.map(jnp.zeros_like, problem.init("zeros")), jnp.zeros(())
    if local is not None:
        others = jnp.asarray(1 - alpha)
        own = _own_outputs(problem, rows.examples, 1 - alpha, local)
        pull = jax.tree.map(lambda leaf: jnp.tensordot(alpha * others, leaf, 1) / len(alpha), local)
        rest = 0.5 * jnp.mean(others**2 * jax.vmap(trees.squared_norm)(local))
    scale, alpha2 = jnp.asarray(np.repeat(alpha, sizes)), jnp.asarray(np.mean(alpha**2))
    return LinearMixture(problem.task, rows.examples, share, scale, own, alpha2, pull, rest)


def _own_outputs(problem: Problem, examples: Examples, factors: np.ndarray, local: Tree) -> jax.Array:
    """Each row's output under its client's pure local model, times the client's factor."""
    offsets, outputs = problem.federation.train.offsets, []
    for client, factor in enumerate(factors):
        rows = slice(offsets[client], offsets[client + 1])
        mine = jax.tree.map(lambda leaf, i=client: leaf[i], local)
        piece = Examples(examples.x[rows], examples.y[rows])
        outputs.append(factor * problem.task.predict(mine, piece, Batch(None, piece.y))[0])
    return jnp.concatenate(outputs)
