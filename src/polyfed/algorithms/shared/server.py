"""The server's side of methods that average: a global model moved by an Optax optimiser along the mean update."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from polyfed.algorithms.shared import checks
from polyfed.core import trees
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.trees import Tree

Optimizer = str | optax.GradientTransformation
"""The name of an Optax optimiser, which gets the stepsize beside it; or, in Python, any gradient transformation."""
ServerOptimizer = Optimizer

NAMES = (
    *("sgd", "noisy_sgd", "sign_sgd", "adam", "adamw", "adamax", "adamaxw", "nadam", "nadamw", "radam", "amsgrad"),
    *("adagrad", "adadelta", "adabelief", "adafactor", "rmsprop", "rprop", "yogi", "lion", "lamb", "lars", "novograd"),
    *("sm3", "fromage", "optimistic_gradient_descent"),
)


class Averaged(NamedTuple):
    """The global model and the state of the server's optimiser."""

    params: Tree
    optimizer: Any


def optimizer(kind: Optimizer, lr: Any) -> optax.GradientTransformation:
    """The transformation that a method names, with this stepsize."""
    return getattr(optax, kind)(lr) if isinstance(kind, str) else kind


def start(method: Any, params: Tree) -> Averaged:
    return Averaged(params, optimizer(method.server_optimizer, method.server_lr).init(params))


def step(method: Any, server: Averaged, mean_update: Tree) -> Averaged:
    """One step of the optimiser on the pseudo-gradient -mean_update; SGD with stepsize 1 is plain averaging."""
    return descend(method.server_optimizer, method.server_lr, server, trees.scale(-1.0, mean_update))


def descend(kind: ServerOptimizer, lr: Any, server: Averaged, gradient: Tree) -> Averaged:
    """One step of the optimiser along a gradient."""
    updates, state = optimizer(kind, lr).update(gradient, server.optimizer, server.params)
    return Averaged(optax.apply_updates(server.params, updates), state)


def check(method: Any) -> None:
    check_optimizer(method)
    checks.number(method, "server_lr", above=True)


def check_optimizer(method: Any, field: str = "server_optimizer") -> None:
    kind = getattr(method, field)
    if isinstance(kind, str):
        if kind not in NAMES:
            raise PolyfedError(f"{method.name}: unknown {field} '{kind}'{suggestion(kind, NAMES)}")
        return
    if not isinstance(kind, optax.GradientTransformation):
        raise PolyfedError(f"{method.name}: {field} must be a name or an Optax transformation, found {kind!r}")
    one = jnp.zeros(1)
    try:
        jax.eval_shape(lambda: kind.update(one, kind.init(one), one))
    except Exception as error:  # one that is made for the parts of a model takes no other tree, and may well fit that
        if isinstance(error, TypeError) and "required keyword-only argument" in str(error):
            raise PolyfedError(f"{method.name}: {field} asks for more than a gradient in a step ({error})") from None
