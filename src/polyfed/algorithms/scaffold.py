"""SCAFFOLD: local SGD whose drift is corrected by control variates."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks
from polyfed.algorithms.shared.local_work import LocalWork
from polyfed.algorithms.shared.trust import ControlVariates
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, add, descend, scale, subtract, zeros_like
from polyfed.problem.objective import Batch, Objective


class ScaffoldServer(NamedTuple):
    """x and c of Algorithm 1."""

    params: Tree
    control: Tree


class ScaffoldUpload(NamedTuple):
    """What a client sends: Delta y_i and Delta c_i."""

    model: Tree
    control: Tree


@algorithm("scaffold")
class Scaffold(ControlVariates, LocalWork):
    """Local SGD without client drift: control variates steer every client towards the common optimum.

    Karimireddy et al. 2020, Algorithm 1: lr is eta_l, local_steps K. A client's state is its control variate c_i.
    """

    local_epochs: int | None = None
    """passes over the client's data per round, instead of local_steps; for clients of like sizes: the corrections go
    astray where numbers of steps differ a hundredfold"""
    server_lr: float = 1.0
    """eta_g, the server's stepsize"""
    option: Literal["I", "II"] = "II"
    """how c_i is renewed: I, the gradient of all of the client's data at x; II, from the path that was walked"""

    def check(self) -> None:
        checks.local_work(self)
        checks.number(self, "server_lr", above=True)

    def init_server(self, params: Tree) -> ScaffoldServer:
        return ScaffoldServer(params, zeros_like(params))

    def init_client(self, params: Tree) -> Tree:
        return zeros_like(params)

    def broadcast(self, server: ScaffoldServer) -> ScaffoldServer:
        return server  # line 4: (x, c)

    def local(self, server: ScaffoldServer, c_i: Tree, f: Objective, key: jax.Array) -> tuple[Upload, Tree]:
        x, c = server
        lr = at(self.lr, f.round)
        control = subtract(c_i, c)

        def step(walked: tuple[Tree, jax.Array], batch: Batch | None) -> tuple[Tree, jax.Array]:
            y, trust = walked
            gradient = f.grad(y, batch)
            share = self.trusted_share(gradient, control)
            return descend(y, lr, subtract(gradient, scale(share, control))), trust + share  # line 10

        (y, trust), steps = f.train(step, (x, jnp.zeros(())), key, self.work)
        if self.option == "I":
            c_next = f.grad(x)  # line 12 (i)
        else:
            walked = scale(1.0 / (steps * lr), subtract(x, y))
            c_next = add(walked, scale(trust / steps, control))  # line 12 (ii): the mean gradient on the way
        sent = ScaffoldUpload(subtract(y, x), subtract(c_next, c_i))  # line 13
        return Upload(sent, steps=steps), c_next

    def update(self, server: ScaffoldServer, total: Total) -> ScaffoldServer:
        mean: ScaffoldUpload = total.mean
        return ScaffoldServer(
            add(server.params, scale(self.server_lr, mean.model)),  # line 17
            add(server.control, scale(total.share, mean.control)),
        )

    def personal(self, server: ScaffoldServer, c_i: Tree) -> Tree:
        return server.params
