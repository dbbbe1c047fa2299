"""DIANA on the FLIX objective: compressed differences to a memory, so that compression costs no accuracy."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed import compress, theory
from polyfed.algorithms.contract import Total, Upload, algorithm
from polyfed.algorithms.shared import checks, mixture
from polyfed.algorithms.shared.compressed import CompressedMethod, model_size
from polyfed.algorithms.shared.mixture import Mixture
from polyfed.algorithms.shared.per_client import is_vector, resolved
from polyfed.algorithms.shared.server import Begun
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.problem.objective import Batching, Objective
from polyfed.problem.problem import Problem

THEOREMS = {"strong": 5, "convex": 7, "nonconvex": 9}
"""The paper's theorem on the stepsize, by how convex the objective is."""


class DianaServer(NamedTuple):
    """x, and h, the mean of the clients' memories; where these start at gradients, the rounds that brought any."""

    params: Tree
    memory: Tree
    rounds: jax.Array | None = None


class DianaState(NamedTuple):
    """The client's mixture, and its memory h_i."""

    mixture: Mixture
    memory: Tree


class DianaUpload(NamedTuple):
    """The compressed difference; and beta_i times it, which has to be summed apart where the beta_i differ."""

    difference: Tree
    memory: Tree | None


@algorithm("diana")
class DIANA(CompressedMethod):
    """Compressed gradient differences on FLIX: converges to the exact solution where DCGD stops in a neighbourhood.

    Gasanov et al. 2022, Algorithm 3 (Mishchenko et al. 2019).
    """

    lr: float | None = None
    """gamma, the server's stepsize; by default the largest of Theorem 5 (convex only: 7; other models: 9)"""
    beta: float | list[float] | None = None
    """beta_i, the stepsize of the memory; by default 1 / (1 + omega) with the largest omega_i"""
    memory: Literal["zero", "gradient"] = "zero"
    """h_i^0: zero, or the first gradient, which then travels uncompressed"""

    def check(self) -> None:
        self.check_mixture()
        compress.make(self.compressor)
        if self.lr is not None:
            checks.number(self, "lr", above=True)
        if self.beta is not None:
            checks.of_clients(self, "beta", 1.0)

    def resolve(self, problem: Problem) -> DIANA:
        alpha, compressor, size = self.weights(problem), self.made_compressor, model_size(problem)
        compressor.check(size)
        if compressor.biased:
            raise PolyfedError(f"{self.name}: needs an unbiased compressor, {compressor.name} is biased; dcgd takes it")
        omega = np.asarray(compressor.omega(size), np.float64)
        given = theory.diana_beta(np.max(omega)) if self.beta is None else np.asarray(self.beta, np.float64)
        beta = float(given) if given.ndim == 0 else given
        if np.any(given * (1 + omega) > 1 + 1e-9):
            mixture.warn_above(self, "beta", given, 1 / (1 + omega), "Lemma 4")
        plm = self.local_models(problem, alpha)
        changes: dict[str, object] = {"alpha": mixture.compact(alpha), "plm": plm}
        if self.lr is None or self.smoothness is not None or problem.model.design is not None:
            L, regime = mixture.smoothness(self, problem)
            limit = theory.diana_stepsize(L, alpha, omega, beta, regime)
            if self.lr is None:
                changes["lr"] = limit if np.isfinite(limit) else 1.0
            else:
                mixture.warn_above(self, "lr", self.lr, limit, f"Theorem {THEOREMS[regime]}")
        return dataclasses.replace(self, **changes, compressor=compressor, beta=beta, smoothness=None)

    def init_server(self, params: Tree) -> DianaServer:
        rounds = jnp.zeros((), jnp.int32) if self.memory == "gradient" else None
        return DianaServer(params, trees.zeros_like(params), rounds)

    def init_client(self, params: Tree) -> DianaState:
        return DianaState(mixture.blank(params), trees.zeros_like(params))

    def prepare(self, state: DianaState, f: Objective, key: jax.Array) -> DianaState:
        return state._replace(mixture=mixture.prepared(self, state.mixture, f, key))

    def broadcast(self, server: DianaServer) -> Tree:
        return server.params if server.rounds is None else Begun(server.params, server.rounds)  # line 2

    def local(self, sent: Tree, state: DianaState, f: Objective, key: jax.Array) -> tuple[Upload, DianaState]:
        x = sent.params if self.memory == "gradient" else sent
        gradient = mixture.gradient(x, state.mixture, f, key, self.one_batch)
        difference = trees.subtract(gradient, state.memory)  # line 4
        message, bits, sealed = self.compressed(f, key, difference)  # line 5
        beta = f.own(self.beta)
        if self.memory == "gradient":
            first = sent.rounds == 0
            message, beta = trees.where(first, difference, message), jnp.where(first, 1.0, beta)
            bits = jnp.where(first, trees.bits(difference), bits)
            sealed = dataclasses.replace(sealed, whole=first)
        change = trees.scale(beta, message)
        apart = is_vector(self.beta)
        values = DianaUpload(message, change if apart else None)
        code = DianaUpload(sealed, dataclasses.replace(sealed, factor=beta) if apart else None)
        bits = bits * (2 if apart else 1)
        upload = Upload(values, bits=bits, silent=state.mixture.alpha == 0, sealed=code)
        return upload, state._replace(memory=trees.add(state.memory, change))  # line 6

    def update(self, server: DianaServer, total: Total) -> DianaServer:
        mean: DianaUpload = total.mean
        step = trees.add(server.memory, mean.difference)  # line 8
        change = mean.memory
        if change is None:
            beta = resolved(self.beta)
            assert not isinstance(beta, list), "clients with their own beta_i send the change of their memory"
            if server.rounds is not None:  # in the first round a memory takes the gradient itself
                beta = jnp.where(server.rounds == 0, 1.0, beta)
            change = trees.scale(beta, mean.difference)
        return DianaServer(
            trees.descend(server.params, resolved(self.lr), step),  # line 9
            trees.add(server.memory, trees.scale(total.share, change)),  # line 10
            None if server.rounds is None else server.rounds + trees.nonzero(mean.difference).astype(jnp.int32),
        )

    def personal(self, server: DianaServer, state: DianaState) -> Tree:
        return mixture.deployed(server.params, state.mixture)

    def own_share(self, state: DianaState) -> jax.Array:
        return 1 - state.mixture.alpha

    def adapt(self, server: DianaServer, f: Objective, key: jax.Array, work: Batching | None = None) -> Tree:
        """The newcomer's pure local model, mixed with the global one."""
        return mixture.joined(self, server.params, f, key, work)
