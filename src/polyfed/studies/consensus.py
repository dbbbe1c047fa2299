"""Consensus error and client drift of any method, local step by local step.

Before each round, the simulation's local work is done once more with an objective that records the client's copy of the
model at every step. The compiled round is left alone, so a run that is not watched costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, Server, State, global_model
from polyfed.algorithms.shared.kept_model import KeptModel
from polyfed.core import randomness
from polyfed.core.errors import PolyfedError
from polyfed.core.randomness import Purpose
from polyfed.core.trees import Tree
from polyfed.engine.round.records import Data
from polyfed.engine.simulation import Simulation
from polyfed.problem.objective import Batch, Batching, Objective
from polyfed.problem.problem import Problem, precision

if TYPE_CHECKING:
    import pandas as pd

MOST = 100
"""How many steps are recorded in a round whose number of steps is drawn."""


class LocalSteps(NamedTuple):
    """A round after k = 0, 1, ... of its local steps; NaN for steps that a client did not take."""

    consensus: np.ndarray
    """xi_k = mean over participants of |w_m - mean w|^2"""
    drift: np.ndarray
    """mean over participants of |w_m - w_m at k = 0|^2"""
    copies: Tree
    """w_m itself: (participants, steps + 1, ...) on each array"""


def consensus(
    problem: Problem,
    method: Algorithm,
    *,
    rounds: int,
    watch: Callable[[int, LocalSteps], None] | None = None,
    **run: Any,
) -> pd.DataFrame:
    """Run a method and measure every local step: a row per round and step, with `consensus` and `drift`.

    `step` counts from 0, where a copy is what the client received, to the last, which the server averages. `run` takes
    what `Simulation` does: participation, seed, init, dtype, devices. `watch` is called with each round's copies.
    """
    import pandas as pd

    simulation = Simulation(problem, method, **run)
    simulation.prepare()
    local_steps, rows, done = Watch(simulation), [], 0
    for number in range(rounds):
        steps = local_steps()
        if watch is not None:
            watch(number, steps)
        rows += [
            {"round": number, "step": k, "iteration": done + k, "consensus": float(xi), "drift": float(moved)}
            for k, (xi, moved) in enumerate(zip(steps.consensus, steps.drift, strict=True))
            if np.isfinite(xi)
        ]
        simulation.advance(1)
        done = simulation.iterations
    return pd.DataFrame(rows)


class Watch:
    """The local steps of a simulation's next round. Looking at them leaves the simulation as it is."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._replay = jax.jit(self._copies)

    def __call__(self) -> LocalSteps:
        simulation, programs = self.simulation, self.simulation.programs
        with precision(simulation.dtype):
            number = jnp.int32(simulation.round)
            clients, taken = programs.round.cohort(programs.data, number)
            clients = np.unique(np.asarray(clients).ravel()[np.asarray(taken).ravel()])
            states = jax.tree.map(lambda leaf: jnp.asarray(leaf[clients]), simulation.client_state)
            data = programs.data._replace(blocks=None)
            copies = self._replay(programs.method, simulation.server, states, jnp.asarray(clients), data, number)
        copies = jax.tree.map(np.asarray, copies)
        flat = [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(copies)]
        rows = np.concatenate(flat, axis=2).astype(np.float64)
        apart, moved = _squares(rows)
        return LocalSteps(_means(apart), _means(moved), copies)

    def _copies(
        self, method: Algorithm, server: Server, states: State, clients: jax.Array, data: Data, number: jax.Array
    ) -> Tree:
        """Every participant's copy of the model after each local step, as `Round.local` would have it."""
        shared = randomness.purpose_key(data.seed, Purpose.LOCAL, number)
        broadcast = method.broadcast(server)
        like = jax.eval_shape(self.simulation.problem.init)

        def copies_of(client: jax.Array, state: State) -> Tree:
            objective = self.simulation.programs.round.objective(data, client, number)
            state = _settled(state, global_model(server))
            given = frozenset(id(leaf) for leaf in jax.tree.leaves((broadcast, state)))
            recorder = RecordingObjective(**vars(objective), like=like, given=given)
            method.local(broadcast, state, recorder, randomness.client_key(shared, data.client_ids[client]))
            if not recorder.copies:
                raise PolyfedError(
                    f"{method.name}: its clients take no local steps, so that there is no drift to measure"
                )
            return recorder.copies[0]

        return jax.vmap(copies_of)(clients, states)


@dataclass(frozen=True, kw_only=True)
class RecordingObjective(Objective):
    """An objective that records the model at every step of the first `train` from one that the client had before.

    Other loops, such as the sum of gradients at one point, move no model.
    """

    like: Tree
    given: frozenset[int]
    """the arrays that the client has at the start of the round, by their ids"""
    copies: list[Tree] = field(default_factory=list)
    """empty until then; afterwards one tree: (steps + 1, ...) on each array"""

    def train(
        self,
        step: Callable[[Tree, Batch | None], Tree],
        carry: Tree,
        key: jax.Array,
        batching: Batching,
        count: jax.Array | None = None,
        earlier: jax.Array | None = None,
    ) -> tuple[Tree, jax.Array]:
        start = _copy(carry, self.like)
        known = start is not None and all(id(leaf) in self.given for leaf in jax.tree.leaves(start))
        if self.copies or not known:
            return super().train(step, carry, key, batching, count, earlier)
        most = _most(self, batching, count)
        log = jax.tree.map(lambda leaf: jnp.full((most + 1, *leaf.shape), jnp.nan, leaf.dtype).at[0].set(leaf), start)

        def recorded(carry: tuple[Tree, Tree, jax.Array], batch: Batch | None) -> tuple[Tree, Tree, jax.Array]:
            inner, log, k = carry
            inner = step(inner, batch)
            now = _copy(inner, self.like)
            return inner, jax.tree.map(lambda row, leaf: row.at[k].set(leaf, mode="drop"), log, now), k + 1

        (carry, log, _), steps = super().train(recorded, (carry, log, jnp.int32(1)), key, batching, count, earlier)
        self.copies.append(log)
        return carry, steps


def _settled(state: State, shared: Tree) -> State:
    """A participant's state, in which the model that it starts from replaces one that it may have kept."""

    def one(part: Tree) -> Tree:
        return part.settled(shared) if isinstance(part, KeptModel) else part

    return jax.tree.map(one, state, is_leaf=lambda part: isinstance(part, KeptModel))


def _most(f: Objective, batching: Batching, count: jax.Array | None) -> int:
    """The most steps that a client may take."""
    if count is not None:
        return MOST
    if batching.epochs is None:
        return batching.steps
    return batching.epochs * (1 if batching.size == "full" else -(-f.longest // min(batching.size, f.longest)))


def _copy(carry: Tree, like: Tree) -> Tree | None:
    """The client's copy of the model: the first part of what a step carries that has the model's shape."""
    if jax.tree.structure(carry) == jax.tree.structure(like):
        shapes = zip(jax.tree.leaves(carry), jax.tree.leaves(like), strict=True)
        if all(jnp.shape(a) == b.shape for a, b in shapes):
            return carry
    if isinstance(carry, tuple):
        return next((copy for part in carry if (copy := _copy(part, like)) is not None), None)
    return None


def _squares(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|w_m - mean w|^2 and |w_m - its start|^2 of (participants, steps, numbers)."""
    here = np.isfinite(rows).all(axis=2, keepdims=True)
    count = np.maximum(here.sum(axis=0), 1)
    mean = np.where(here, rows, 0).sum(axis=0) / count
    return np.sum((rows - mean) ** 2, axis=2), np.sum((rows - rows[:, :1]) ** 2, axis=2)


def _means(values: np.ndarray) -> np.ndarray:
    """The mean over the clients that still take steps; NaN where none does."""
    here = np.isfinite(values)
    count = here.sum(axis=0)
    return np.where(count > 0, np.where(here, values, 0).sum(axis=0) / np.maximum(count, 1), np.nan)
