"""Pure local training: every client on its own, the yardstick of all collaboration."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer
from polyfed.algorithms.shared.local_work import LocalWork
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, descend, zeros_like
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("local")
class Local(LocalWork):
    """Every client alone: SGD on its own data; nothing is sent.

    x_i <- x_i - lr grad f_i(x_i; batch).
    """

    def check(self) -> None:
        checks.local_work(self, per_step=True)

    def init_server(self, params: Tree) -> None:
        return None

    def init_client(self, params: Tree) -> Tree:
        return params

    def broadcast(self, server: None) -> None:
        return None

    def local(self, broadcast: None, x: Tree, f: Objective, key: jax.Array) -> tuple[Upload, Tree]:
        x, steps = self._trained(x, f, f.round, key, self.work)
        return Upload(None, steps=steps), x

    def update(self, server: None, total: Total) -> None:
        return None

    def personal(self, server: None, x: Tree) -> Tree:
        return x

    def adapt(self, server: None, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """Alone from the model's own start: as many rounds of its local work as the federation has done, or `work`."""
        model = f.task.model
        start = model.init(jax.random.fold_in(key, newcomer.ASIDE))
        start = zeros_like(start) if model.start == "zeros" else start
        if work is not None:
            return self._trained(start, f, f.round, key, work)[0]

        def round(number: jax.Array, x: Tree) -> Tree:
            return self._trained(x, f, number, jax.random.fold_in(key, number), self.work)[0]

        return lax.fori_loop(0, jnp.maximum(f.round, 1), round, start)

    def _trained(
        self, start: Tree, f: Objective, round: jax.Array, key: jax.Array, work: Batching
    ) -> tuple[Tree, jax.Array]:
        """SGD on the client's own rows, with the stepsizes of a round."""

        def step(carry: tuple[Tree, jax.Array], batch: Batch | None) -> tuple[Tree, jax.Array]:
            x, count = carry
            lr = at(self.lr, round, round * self.local_steps + count + 1)
            return descend(x, lr, f.grad(x, batch)), count + 1

        (x, _), steps = f.train(step, (start, jnp.zeros((), jnp.int32)), key, work)
        return x, steps
