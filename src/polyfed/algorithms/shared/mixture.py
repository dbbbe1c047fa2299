"""What the methods on the FLIX objective share: mixing weights, pure local models, and the mixture that is deployed.

The objective is (1/n) sum_i f_i(T_i(x)) with T_i(x) = alpha_i x + (1 - alpha_i) x_i*: small alpha, personal model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import theory
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.local_models import LocalTraining, pure_local_model
from polyfed.algorithms.shared.local_work import Steps
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Schedule, at
from polyfed.core.trees import Tree, mix, scale
from polyfed.problem.objective import Batching, Objective
from polyfed.problem.problem import Problem
from polyfed.problem.reference import Constants


@dataclass(frozen=True, kw_only=True)
class MixtureMethod(Steps):
    """A method on the FLIX objective: its mixing weights, and how its pure local models are computed."""

    alpha: float | str | list[float] = 0.5
    """alpha_i, the weight of the GLOBAL model: a number, one for each client, a column of the data or a rule"""
    plm_tolerance: float | None = None
    """the gradient norm at which the pure local models x_i* are left: 1e-12 by default, with epochs none"""
    plm_epochs: int | None = None
    """compute x_i* by so many epochs of SGD at most, instead of Newton's method; nets need it"""
    plm_lr: Schedule = 0.1
    """the stepsize of those epochs: a number, or a schedule that counts epochs"""
    plm_batch: int | Literal["full"] = 20
    """the rows per step of those epochs"""
    plm_patience: int | None = None
    """stop after so many epochs without a lower validation loss, and take the model that had the lowest"""
    plm: bool = True
    """compute pure local models; switched off by itself where alpha = 1 for all"""

    def check_mixture(self) -> None:
        """The fields of every method on the FLIX objective."""
        check_alpha(self, self.alpha)
        if self.plm_tolerance is not None:
            checks.number(self, "plm_tolerance", above=True)
        for name in ("plm_epochs", "plm_patience"):
            if vars(self)[name] is not None:
                checks.whole(self, name)
        if self.plm_patience is not None and self.plm_epochs is None:
            raise PolyfedError(f"{self.name}: plm_patience counts epochs, and goes with plm_epochs")
        checks.stepsize(self, "plm_lr")
        checks.batches(self)
        checks.batches(self, "plm_batch")

    def weights(self, problem: Problem) -> np.ndarray:
        """alpha_i of every client."""
        return problem.mixing_weights(self.alpha, f"{self.name}: alpha")

    @property
    def local_training(self) -> LocalTraining:
        """How its pure local models are computed."""
        even = self.even and self.plm_epochs is not None
        return LocalTraining(self.plm_epochs, self.plm_lr, self.plm_batch, self.plm_tolerance, self.plm_patience, even)

    def trained_as(self, training: LocalTraining) -> Self:
        """The method whose pure local models are computed like this; how passes are cut stays its own."""
        return replace(self, **{f"plm_{name}": value for name, value in vars(training).items() if name != "even"})

    def with_given_models(self) -> Self:
        """The method where the pure local models are in the clients' states already."""
        return replace(self, plm=False)

    def local_models(self, problem: Problem, alpha: np.ndarray) -> bool:
        """Whether pure local models are to be computed; a net's need epochs of SGD.

        Newton's method starts at zero, where all but the last bias of a net has a gradient of zero.
        """
        if not (self.plm and bool(np.any(alpha < 1))):
            return False
        if self.plm_epochs is None and problem.model.start != "zeros":
            raise PolyfedError(
                f"{self.name}: plm_epochs must be given, found none: the pure local models of a model that is not "
                "linear are trained by so many epochs of SGD"
            )
        return True


@dataclass(frozen=True, kw_only=True)
class SmoothMixtureMethod(MixtureMethod):
    """One whose default stepsize follows from the smoothness of the clients' objectives."""

    smoothness: float | list[float] | None = None
    """L_i, for the default stepsize; by default measured, which needs a linear model"""


class Mixture(NamedTuple):
    """A client's side of the mixture: alpha_i, x_i*, and the gradient norm at which x_i* was left."""

    alpha: jax.Array
    own: Tree
    grad_norm: jax.Array


def blank(params: Tree) -> Mixture:
    """Before the local models are known: all weight on the global model."""
    return Mixture(jnp.ones(()), params, jnp.zeros(()))


def prepared(method: MixtureMethod, mixture: Mixture, f: Objective, key: jax.Array) -> Mixture:
    """alpha_i and, unless they are there already, x_i* and its gradient norm."""
    alpha = jnp.asarray(f.own(method.alpha))
    if not method.plm:
        return Mixture(alpha, mixture.own, mixture.grad_norm)
    model = pure_local_model(method.local_training, mixture.own, f, key)
    return Mixture(alpha, model.params, model.grad_norm)


def joined(method: MixtureMethod, x: Tree, f: Objective, key: jax.Array, work: Batching | None) -> Tree:
    """The mixture of a client that joins after training: alpha as for all, or the mean where clients have their own.

    Its pure local model is computed as everybody's, or by `work`. Where that is SGD, it starts at the global model x.
    """
    if work is not None and method.plm:
        lr = at(method.plm_lr, jnp.zeros((), jnp.int32))
        mine = Mixture(newcomer.typical(method.alpha), newcomer.fit(x, f, key, lr, work), jnp.zeros(()))
    else:
        mine = prepared(method, blank(x), f, key)._replace(alpha=newcomer.typical(method.alpha))
    return deployed(x, mine)


def deployed(x: Tree, mixture: Mixture) -> Tree:
    """T_i(x)."""
    return mix(mixture.alpha, x, mixture.own)


def gradient(x: Tree, mixture: Mixture, f: Objective, key: jax.Array, batching: Batching) -> Tree:
    """The gradient of x -> f_i(T_i(x)): alpha_i grad f_i(T_i(x)), on all rows or on one batch."""
    model = deployed(x, mixture)
    at_model, _ = f.train(lambda _, batch: f.grad(model, batch), model, key, batching)
    return scale(mixture.alpha, at_model)


def smoothness(method: SmoothMixtureMethod, problem: Problem, wanted: str = "lr") -> tuple[np.ndarray, theory.Regime]:
    """L_i of every client, and how convex the objective is: measured for linear models, else as the method was told."""
    known = problem.model.design is not None
    if method.smoothness is not None:
        checks.of_clients(method, "smoothness")
        given = np.asarray(method.smoothness, np.float64)
        if given.ndim and given.shape != (len(problem),):
            raise PolyfedError(
                f"{method.name}: smoothness has {given.size} values, expected one for each of {len(problem)} clients"
            )
        values = np.broadcast_to(given, len(problem))
    elif known:
        values = problem.constants.smoothness
    else:
        raise PolyfedError(
            f"{method.name}: {wanted} must be given: the theory's value needs a linear model, or smoothness (L_i)"
        )
    if not known:
        return values, "nonconvex"
    return values, "strong" if np.all(problem.constants.convexity > 0) else "convex"


def constants(method: Algorithm, problem: Problem, wanted: str) -> Constants:
    """The problem's constants, or an error that says what to give instead."""
    try:
        return problem.constants
    except PolyfedError:
        raise PolyfedError(f"{method.name}: {wanted} must be given: the theory's value needs a linear model") from None


def compact(values: np.ndarray) -> float | np.ndarray:
    """One number where all clients have the same; else the vector, which is what compiled programs take."""
    return float(values[0]) if np.all(values == values[0]) else values


def check_alpha(method: Algorithm, alpha: float | str | list[float]) -> None:
    """A mixing weight that is one number must be in [0, 1]; others are checked when they are resolved."""
    if isinstance(alpha, int | float):
        checks.number(method, "alpha", 0.0, 1.0)


def warn_above(
    method: Algorithm, name: str, value: float | np.ndarray, limit: float | np.ndarray, theorem: str
) -> None:
    """Say so where a stepsize is above what a theorem allows."""
    excess = np.asarray(value) > np.asarray(limit) * (1 + 1e-9)
    if np.any(excess):
        first = int(np.argmax(excess)) if np.ndim(excess) else 0
        shown = float(np.ravel(np.broadcast_to(value, np.shape(excess)))[first])
        most = float(np.ravel(np.broadcast_to(limit, np.shape(excess)))[first])
        warnings.warn(
            f"{method.name}: {name} = {shown:.4g} is above {most:.4g}, the largest that {theorem} allows", stacklevel=2
        )
