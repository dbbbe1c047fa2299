"""The scores that models give to clients' rows, a block of clients at a time: what metrics are computed from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from polyfed.algorithms.contract import Algorithm, Server, State
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.engine.devices.layout import BY_CLIENT, SAME
from polyfed.engine.measure import FineTune, Measure, eval_block
from polyfed.engine.programs import Programs, laid_out, splits_laid_out
from polyfed.engine.round.chunks import over_clients
from polyfed.engine.round.records import Data, Shard
from polyfed.engine.states.feed import Fed
from polyfed.problem.metrics import canonical, constant_scores
from polyfed.problem.objective import Batch
from polyfed.problem.problem import precision

if TYPE_CHECKING:
    from polyfed.engine.simulation import Simulation

BLOCK_BYTES = 4 << 20
"""The most that the outputs of a block of clients take on a device; its rows and scores take many times that."""
PADDING = 2.0
"""Clients of all sizes share a block while the room that it has is at most so many times the rows."""
STEP = 4
"""Else those share one that have at most so many times as many rows as another."""


class ScoredClients(NamedTuple):
    """Some clients' labels and the scores of models for them, in the form that metrics read: an array per client."""

    clients: np.ndarray
    """their places in the federation"""
    labels: list[np.ndarray]
    scores: dict[str, list[np.ndarray]]
    """by the model's name; where clients deploy the global model, "personal" and "global" are the same object"""


class Outputs(NamedTuple):
    """What a device finds: of each client the outputs of every model for its rows, and the targets; padded."""

    models: dict[str, jax.Array]
    targets: jax.Array
    sizes: jax.Array


@dataclass(frozen=True)
class Score:
    """Applies the models that `Measure` measures to rows, inside the devices' `shard_map`."""

    measure: Measure
    split: str
    room: int
    """rows of a client, at least as many as any of these clients has"""
    block: int
    """rows at a time; divides the room"""

    def __call__(
        self,
        method: Algorithm,
        server: Server,
        clients: jax.Array,
        states: State,
        data: Data,
        splits: dict[str, Shard],
        rate: jax.Array | None = None,
    ) -> Outputs:
        round, rows = self.measure.adapting(data, splits)
        shard = splits[self.split]

        def of_client(client: jax.Array, state: State) -> Outputs:
            models = self.measure.models(round, method, server, state, client, rows, rate)
            outputs = {name: self._outputs(params, shard, client) for name, params in models.items()}
            targets = jnp.take(shard.examples.y, self._rows(shard, client, jnp.arange(self.room)), axis=0)
            return Outputs(outputs, targets, shard.sizes[client])

        return over_clients(of_client, clients, self.measure.chunk, states)

    def _rows(self, shard: Shard, client: jax.Array, positions: jax.Array) -> jax.Array:
        """Rows of the client; beyond its last, that row again, and row 0 of all where it has none."""
        last = jnp.maximum(shard.sizes[client] - 1, 0)
        return jnp.minimum(shard.starts[client] + jnp.minimum(positions, last), len(shard.examples.y) - 1)

    def _outputs(self, params: Tree, shard: Shard, client: jax.Array) -> jax.Array:
        task, size = self.measure.round.task, shard.sizes[client]

        def outputs(index: jax.Array) -> jax.Array:
            rows = self._rows(shard, client, index * self.block + jnp.arange(self.block))
            return task.predict(params, shard.examples, Batch(rows, None))[0]

        shape = jax.eval_shape(outputs, jnp.int32(0))
        blank = jnp.zeros((self.room, *shape.shape[1:]), shape.dtype)

        def body(index: jax.Array, whole: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(whole, outputs(index), index * self.block, 0)

        return lax.fori_loop(0, (size + self.block - 1) // self.block, body, blank)


def scored_clients(
    simulation: Simulation, split: str, finetune: FineTune | None, constant: bool
) -> Iterator[ScoredClients]:
    """See `Simulation.scores`."""
    part = simulation.problem.federation.split(split)
    if not part.rows:
        raise PolyfedError(f"this federation has no {split} rows")
    if finetune is not None and simulation.global_params is None:
        raise PolyfedError(f"{simulation.method.name} has no global model to fine-tune")
    for clients, longest in _alike(simulation.evaluated, part.sizes[simulation.evaluated]):
        blocks = _outputs(simulation, split, finetune, clients, longest)
        while True:
            with precision(simulation.dtype):  # only while it computes: between blocks the caller does
                block = next(blocks, None)
            if block is None:
                break
            yield _scored(simulation, *block, constant)


def _alike(clients: np.ndarray, sizes: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Clients whose blocks have the same room, and the rows of the largest."""
    sizes = np.maximum(sizes, 1)
    if len(sizes) * int(sizes.max()) <= PADDING * int(sizes.sum()):
        yield clients, int(sizes.max())
        return
    steps = np.ceil(np.log(sizes) / np.log(STEP) - 1e-9).astype(int)
    for step in np.unique(steps):
        yield clients[steps == step], int(sizes[steps == step].max())


def _outputs(
    simulation: Simulation,
    split: str,
    finetune: FineTune | None,
    clients: np.ndarray,
    longest: int,
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """The outputs for the rows of these clients, in blocks."""
    programs, rate = simulation.programs, None
    if finetune is not None:  # its stepsize is an input: another one compiles nothing anew
        rate = np.asarray(finetune.lr, jnp.result_type(float))
        finetune = replace(finetune, lr=0.0)
    block = eval_block(min(longest, programs.measured_rows))
    room = -(-longest // block) * block
    on_test = simulation.adapt_on_test
    measure = Measure(programs.round, programs.measure_chunk, programs.longest, finetune, on_test)
    score = Score(measure, split, room, block)
    needed = {split, "test"} if on_test else {split}

    def of_wave(fed: Fed, states: State) -> Tree:
        splits = {name: shard for name, shard in fed.splits.items() if name in needed}
        arguments = (programs.placed_method, simulation.residence.server, fed.clients, states, fed.data, splits, rate)
        specs = (SAME, SAME, BY_CLIENT, BY_CLIENT, laid_out(fed.data), splits_laid_out(fed.data, splits), SAME)
        name = ("scores", programs.round.exact, programs.measure_chunk, finetune, on_test, split, room, block)
        return programs.compiled(name, score, specs, BY_CLIENT, arguments)(*arguments)

    most = max(1, BLOCK_BYTES // max(1, room * _row_bytes(programs)))
    return simulation.residence.over(clients, of_wave, most)


def _row_bytes(programs: Programs) -> int:
    """What the outputs of two models for a row take."""
    problem, key = programs.problem, "shape of an example's outputs"
    if key not in problem.traced:  # finding it takes longer than a small block
        params = jax.eval_shape(problem.init)
        problem.traced[key] = jax.eval_shape(problem.model.apply, params, problem.example()).shape
    return 2 * prod(problem.traced[key][1:]) * jnp.result_type(float).itemsize


def _scored(simulation: Simulation, clients: np.ndarray, scored: Outputs, constant: bool) -> ScoredClients:
    """A block as scores: all rows are converted at once, and then dealt out to their clients."""
    problem = simulation.problem
    sizes, targets = np.asarray(scored.sizes), np.asarray(scored.targets)
    inside = np.arange(targets.shape[1]) < sizes[:, None]
    positions = prod(targets.shape[2:]) if problem.loss.name == "softmax" else 1
    ends = np.cumsum(sizes * positions)[:-1]
    labels, scores = [], {}
    for model, outputs in scored.models.items():
        values, flat = canonical(problem, np.asarray(outputs)[inside], targets[inside])
        scores[model], labels = np.split(values, ends), np.split(flat, ends)
    if "global" in scores:  # whoever deploys it has it as its personal one
        scores = {"personal": scores.get("personal", scores["global"]), "global": scores["global"]}
    if constant:
        scores["constant"] = [
            np.broadcast_to(row := constant_scores(problem, client), (len(own), *row.shape))
            for client, own in zip(clients.tolist(), labels, strict=True)
        ]
    return ScoredClients(clients, labels, scores)
