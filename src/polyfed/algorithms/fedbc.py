"""FedBC: every client's model may leave the global one by a tolerance; the multipliers also weigh the clients."""

from __future__ import annotations

from typing import Literal

import jax
import optax

from polyfed.algorithms.contract import Upload, algorithm
from polyfed.algorithms.shared import checks, newcomer, server
from polyfed.algorithms.shared.bonds import BcServer, BcState, BondedMethod, kept, lagrangian_gradient
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.algorithms.shared.server import Optimizer
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import at
from polyfed.core.trees import Tree, squared_norm, subtract
from polyfed.problem.objective import Batch, Batching, Objective


@algorithm("fedbc")
class FedBC(BondedMethod):
    """Beyond consensus: min sum_i f_i(x_i) s.t. |x_i - z|^2 <= gamma_i, by a primal-dual method.

    Bedi et al. 2022, Algorithms 1 and 2, with the paper's rule for gamma_i. A client deploys x_i. lr is beta,
    local_steps K_i, local_epochs E.
    """

    start: Literal["server", "own"] = "server"
    """where local work starts: at z, as in the published code, or at the client's own x_i, as in the paper's text"""
    optimizer: Optimizer = "sgd"
    """any of Optax's, for the local steps; it begins anew in every round"""
    momentum: float | None = None
    """the share of a local step that goes into the next one, with "sgd" """
    adapt_steps: int = 0
    """steps of SGD on training rows that a client takes from x_i before it deploys it; above 0: FedBC-FineTune"""
    adapt_lr: float | None = None
    """the stepsize of those steps; by default lr"""

    def check(self) -> None:
        BondedMethod.check(self)
        server.check_optimizer(self, "optimizer")
        checks.momentum(self, self.momentum)
        if self.momentum is not None and self.optimizer != "sgd":
            raise PolyfedError(f"fedbc: momentum goes with optimizer = 'sgd' alone, found {self.optimizer!r}")
        checks.whole(self, "adapt_steps", 0)
        if self.adapt_lr is not None:
            checks.number(self, "adapt_lr", above=True)

    def init_client(self, params: Tree) -> BcState:
        return BcState(KeptModel.start(params), self.first_bond())

    def local(self, z: Tree, state: BcState, f: Objective, key: jax.Array) -> tuple[Upload, BcState]:
        start = z if self.start == "server" else kept(state).beside(z)
        x, steps = self._oracle(start, z, state.bond.multiplier, f, key, self.work)  # line 7
        move = subtract(x, z)
        bond = self.dual_step(state.bond, squared_norm(move), f.round)  # line 8
        return Upload(move, self.weight(bond, f), steps=steps), BcState(KeptModel.after(x), bond)  # line 9

    def personal(self, server: BcServer, state: BcState) -> Tree:
        return kept(state).beside(server.params)

    def own_share(self, state: BcState) -> jax.Array:
        return kept(state).share

    def refine(self, model: Tree, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """FedBC-FineTune: adapt_steps more, on f_i alone."""
        if self.adapt_steps == 0:
            return model
        lr = at(self.lr, f.round) if self.adapt_lr is None else self.adapt_lr
        return newcomer.fit(model, f, key, lr, self.steps_of(self.adapt_steps))

    def adapt(self, server: BcServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """x from the global model, which stays, bound by the others' mean multiplier; then fine-tuned, if they are."""
        z = server.params
        x, _ = self._oracle(z, z, server.multiplier, f, key, work or self.work)
        return self.refine(x, f, jax.random.fold_in(key, newcomer.ASIDE))

    def _oracle(
        self, start: Tree, z: Tree, multiplier: jax.Array, f: Objective, key: jax.Array, work: Batching
    ) -> tuple[Tree, jax.Array]:
        """Algorithm 2: an optimiser's steps on f_i(x) + lambda_i (|x - z|^2 - gamma_i)."""
        lr = at(self.lr, f.round)
        rule = server.optimizer(self.optimizer, lr) if self.momentum is None else optax.sgd(lr, self.momentum)

        def step(carry: tuple[Tree, Tree], batch: Batch | None) -> tuple[Tree, Tree]:
            x, memory = carry
            updates, memory = rule.update(lagrangian_gradient(x, z, multiplier, f, batch), memory, x)
            return optax.apply_updates(x, updates), memory

        (x, _), steps = f.train(step, (start, rule.init(start)), key, work)
        return x, steps
