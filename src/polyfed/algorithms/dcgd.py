"""DCGD on the FLIX objective: gradient descent whose clients send compressed gradients."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from polyfed import compress, theory
from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture
from polyfed.algorithms.shared.compressed import CompressedMethod, model_size
from polyfed.algorithms.shared.mixture import Mixture
from polyfed.algorithms.shared.per_client import resolved
from polyfed.algorithms.shared.server import GlobalModel, SendsModel
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batching, Objective
from polyfed.problem.problem import Problem

THEOREMS = {"strong": 4, "convex": 6, "nonconvex": 8}
"""The paper's theorem on the stepsize, by how convex the objective is."""


class DcgdState(NamedTuple):
    """The client's mixture, and the error that a biased compressor left behind."""

    mixture: Mixture
    error: Tree | None


@algorithm("dcgd")
class DCGD(CompressedMethod, SendsModel):
    """Compressed gradient descent on FLIX: each client sends C_i(alpha_i grad f_i(T_i(x))).

    Gasanov et al. 2022, Algorithm 2. With the biased Top-k it keeps an error memory (error feedback), as an extra.
    """

    lr: float | None = None
    """gamma, the server's stepsize; by default the largest of Theorem 4 (convex only: 6; other models: 8)"""

    def check(self) -> None:
        self.check_mixture()
        compress.make(self.compressor)
        if self.lr is not None:
            checks.number(self, "lr", above=True)

    def resolve(self, problem: Problem) -> DCGD:
        alpha, compressor, size = self.weights(problem), self.made_compressor, model_size(problem)
        compressor.check(size)
        changes: dict[str, object] = {
            "alpha": mixture.compact(alpha),
            "plm": self.local_models(problem, alpha),
            "compressor": compressor,
        }
        if compressor.biased:
            if self.lr is None:
                raise PolyfedError(f"{self.name}: lr must be given with the biased compressor {compressor.name}")
        elif self.lr is None or self.smoothness is not None or problem.model.design is not None:
            L, regime = mixture.smoothness(self, problem)
            limit = theory.dcgd_stepsize(L, alpha, compressor.omega(size), regime)
            if self.lr is None:
                changes["lr"] = limit if np.isfinite(limit) else 1.0
            else:
                mixture.warn_above(self, "lr", self.lr, limit, f"Theorem {THEOREMS[regime]}")
        return dataclasses.replace(self, **changes, smoothness=None)

    def init_client(self, params: Tree) -> DcgdState:
        biased = self.made_compressor.biased
        return DcgdState(mixture.blank(params), trees.zeros_like(params) if biased else None)

    def prepare(self, state: DcgdState, f: Objective, key: jax.Array) -> DcgdState:
        return state._replace(mixture=mixture.prepared(self, state.mixture, f, key))

    def local(self, x: Tree, state: DcgdState, f: Objective, key: jax.Array) -> tuple[Upload, DcgdState]:
        gradient = mixture.gradient(x, state.mixture, f, key, self.one_batch)  # line 4
        if state.error is not None:
            gradient = trees.add(gradient, state.error)
        message, bits, sealed = self.compressed(f, key, gradient)  # line 5
        if state.error is not None:
            state = state._replace(error=trees.subtract(gradient, message))
        return Upload(message, bits=bits, silent=state.mixture.alpha == 0, sealed=sealed), state

    def update(self, server: GlobalModel, total: Total) -> GlobalModel:
        return GlobalModel(trees.descend(server.params, resolved(self.lr), total.mean))  # lines 6, 7

    def personal(self, server: GlobalModel, state: DcgdState) -> Tree:
        return mixture.deployed(server.params, state.mixture)

    def own_share(self, state: DcgdState) -> jax.Array:
        return 1 - state.mixture.alpha

    def adapt(self, server: GlobalModel, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's pure local model, mixed with the global one."""
        return mixture.joined(self, server.params, f, key, work)
