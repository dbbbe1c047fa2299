"""The server's side of methods: a global model alone, or one moved by an Optax optimiser along the mean update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared import checks
from polyfed.core import trees
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.trees import Scalar, Tree
from polyfed.models.parameters import shapes

Optimizer = str | optax.GradientTransformation
"""The name of an Optax optimiser, which gets the stepsize beside it; or, in Python, any gradient transformation."""
ServerOptimizer = Optimizer

NAMES = (
    *("sgd", "noisy_sgd", "sign_sgd", "adam", "adamw", "adamax", "adamaxw", "nadam", "nadamw", "radam", "amsgrad"),
    *("adagrad", "adadelta", "adabelief", "adafactor", "rmsprop", "rprop", "yogi", "lion", "lamb", "lars", "novograd"),
    *("sm3", "fromage", "optimistic_gradient_descent"),
)


class GlobalModel(NamedTuple):
    """A server that keeps the global model and nothing else."""

    params: Tree


class Averaged(NamedTuple):
    """The global model and the state of the server's optimiser."""

    params: Tree
    optimizer: Tree


class Begun(NamedTuple):
    """The global model, and the rounds so far that anybody counted in: at 0 the method's first round is still to come.

    A round that is empty, or has only clients that weigh nothing, is not the first. Clients cannot know that from the
    round's number, so it is sent to them.
    """

    params: Tree
    rounds: jax.Array

    @classmethod
    def start(cls, params: Tree) -> Begun:
        return cls(params, jnp.zeros((), jnp.int32))


class SendsModel(Algorithm):
    """A method whose server keeps the global model alone, and sends it."""

    def init_server(self, params: Tree) -> GlobalModel:
        return GlobalModel(params)

    def broadcast(self, server: GlobalModel) -> Tree:
        return server.params


@dataclass(frozen=True, kw_only=True)
class Averages(Algorithm):
    """A method whose server sends the global model, and moves it along the mean of the uploaded moves."""

    server_optimizer: ServerOptimizer = "sgd"
    """any of Optax's, applied to the mean update"""
    server_lr: float = 1.0
    """the server's stepsize; 1 with "sgd" is plain averaging"""

    def check(self) -> None:
        check_optimizer(self)
        checks.number(self, "server_lr", above=True)

    def init_server(self, params: Tree) -> Averaged:
        return start(self.server_optimizer, self.server_lr, params)

    def broadcast(self, server: Averaged) -> Tree:
        return server.params

    def moved(self, server: Averaged, mean_update: Tree) -> Averaged:
        """One step of the optimiser on the pseudo-gradient -mean_update; SGD with stepsize 1 is plain averaging."""
        return descend(self.server_optimizer, self.server_lr, server, trees.scale(-1.0, mean_update))


def optimizer(kind: Optimizer, lr: Scalar | None) -> optax.GradientTransformation:
    """The transformation that a method names, with this stepsize."""
    return getattr(optax, kind)(lr) if isinstance(kind, str) else kind


def start(kind: Optimizer, lr: Scalar | None, params: Tree) -> Averaged:
    return Averaged(params, optimizer(kind, lr).init(params))


def descend(kind: Optimizer, lr: Scalar | None, server: Averaged, gradient: Tree) -> Averaged:
    """One step of the optimiser along a gradient."""
    updates, state = optimizer(kind, lr).update(gradient, server.optimizer, server.params)
    return Averaged(optax.apply_updates(server.params, updates), state)


def check_optimizer(method: Algorithm, field: str = "server_optimizer") -> None:
    kind = getattr(method, field)
    if isinstance(kind, str):
        if kind not in NAMES:
            raise PolyfedError(f"{method.name}: unknown {field} '{kind}'{suggestion(kind, NAMES)}")
        return
    if not isinstance(kind, optax.GradientTransformation):
        raise PolyfedError(f"{method.name}: {field} must be a name or an Optax transformation, found {kind!r}")
    number = jnp.zeros(1)
    try:
        shapes(lambda: kind.update(number, kind.init(number), number))
    except Exception as error:  # one that is made for the parts of a model takes no other tree, and may well fit that
        if isinstance(error, TypeError) and "required keyword-only argument" in str(error):
            raise PolyfedError(f"{method.name}: {field} asks for more than a gradient in a step ({error})") from None
