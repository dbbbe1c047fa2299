"""Clients that join after training: each gets its model by the method's own rule, all of them in one program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from polyfed.algorithms.contract import Algorithm, Server, global_model
from polyfed.algorithms.shared import newcomer
from polyfed.core import randomness
from polyfed.core.randomness import Purpose
from polyfed.core.trees import Tree
from polyfed.engine.client_metrics import Metrics, as_metrics
from polyfed.engine.devices.layout import BY_CLIENT, SAME, Devices, layout
from polyfed.engine.measure import FineTune, Measure
from polyfed.engine.participation import sampling
from polyfed.engine.placement import resident
from polyfed.engine.programs import Programs, laid_out, splits_laid_out
from polyfed.engine.round.chunks import over_clients, owned
from polyfed.engine.round.records import Data, Shard
from polyfed.engine.simulation import as_traced
from polyfed.problem.objective import Batching, Objective
from polyfed.problem.problem import DType, Problem, precision


class ValidationProbe:
    """A client's validation rows, which note that somebody asked for them."""

    def __init__(self, rows: Objective) -> None:
        self.rows, self.asked = rows, False

    def __getattr__(self, name: str) -> object:
        self.asked = True
        return getattr(self.rows, name)


def learns_from_validation(problem: Problem, method: Algorithm, server: Server, dtype: DType = "float32") -> bool:
    """Whether a newcomer's model depends on its validation rows: the method's rule is traced, and nothing computed."""
    sizes = problem.federation.validation.sizes
    if not np.any(sizes):
        return False
    with precision(dtype):
        client = problem.federation.clients[int(np.argmax(sizes))]
        f = problem.objective(client, "train")
        probe: Any = ValidationProbe(problem.objective(client, "validation"))
        f = replace(f, validation=probe)
        jax.eval_shape(lambda server, key: newcomer.model_of(method, server, f, key), server, jax.random.key(0))
    return probe.asked


def join(
    problem: Problem,
    method: Algorithm,
    server: Server,
    *,
    round: int,
    seed: int = 0,
    dtype: DType = "float32",
    work: Batching | None = None,
    finetune: FineTune | None = None,
    devices: Devices | None = None,
    chunk: int | None = None,
) -> tuple[Tree, Metrics]:
    """The models of all clients of `problem`, a leading client axis on each array, and their metrics.

    `method` is resolved and `server` is its state after `round` rounds; neither has seen these clients. With `finetune`
    the rule is local fine-tuning of the global model. `work` takes the place of the rule's own amount of work.
    """
    place = layout(len(problem), devices)
    with precision(dtype):
        data, splits = resident(problem, place, seed, in_blocks=False)
        everybody = sampling(1.0, len(problem))
        programs = Programs(problem, as_traced(method), place, everybody, chunk, data, splits)
        measure = Measure(programs.round, programs.measure_chunk, programs.longest)

        def rule(method: Algorithm, server: Server, data: Data, number: jax.Array, client: jax.Array) -> Tree:
            f = programs.round.objective(data, client, number)
            key = randomness.client_key(randomness.purpose_key(data.seed, Purpose.FINETUNE), data.client_ids[client])
            if finetune is None:
                return newcomer.model_of(method, server, f, key, work)
            return newcomer.fit(server.params, f, key, finetune.lr, work or Batching(finetune.batch, finetune.steps))

        def everyone(
            method: Algorithm, server: Server, data: Data, splits: dict[str, Shard], number: jax.Array
        ) -> tuple[Tree, Tree]:
            shared = global_model(server)

            def of_client(client: jax.Array, _: None) -> tuple[Tree, Tree]:
                own = rule(method, server, data, number, client)
                models = {"personal": own} if shared is None else {"personal": own, "global": shared}
                return own, {
                    name: {split: measure.of(params, split, shard, client) for split, shard in splits.items()}
                    for name, params in models.items()
                }

            return over_clients(of_client, owned(place), programs.measure_chunk, None)

        arguments = (programs.placed_method, programs.everywhere(server), data, splits, np.int32(round))
        name = ("join", programs.round, programs.measure_chunk, work, finetune)
        specs = (SAME, SAME, laid_out(data), splits_laid_out(data, splits), SAME)
        params, measured = programs.fetched(programs.compiled(name, everyone, specs, BY_CLIENT, arguments)(*arguments))
    count = len(problem)
    return jax.tree.map(lambda leaf: np.asarray(leaf[:count]), params), as_metrics(measured, problem, count)
