"""The fine-tuned models themselves, for whoever keeps them: measuring makes them and drops them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.engine.measure import FineTune, tuned
from polyfed.engine.round.records import Data
from polyfed.engine.round.round import Round
from polyfed.engine.simulation import Simulation
from polyfed.engine.states.feed import single_client
from polyfed.problem.problem import precision


def finetuned(simulation: Simulation, finetune: FineTune, client: str) -> Tree:
    """One client's fine-tuned global model."""
    [model] = finetuned_blocks(simulation, finetune, [simulation.problem.federation.index(client)])
    return jax.tree.map(lambda leaf: leaf[0], model)


def finetuned_blocks(
    simulation: Simulation, finetune: FineTune, clients: Sequence[int] | None = None
) -> Iterator[Tree]:
    """Clients' fine-tuned global models, by default the evaluated ones', one after another: a leading axis of one.

    Not with several processes, where a client's rows may be elsewhere.
    """
    shared, programs = simulation.global_params, simulation.programs
    if shared is None or simulation.layout.hosts > 1:
        raise PolyfedError(f"{simulation.method.name}: fine-tuned models need a global model and a single process")
    with precision(simulation.dtype):
        rate, steps = jnp.asarray(finetune.lr, float), replace(finetune, lr=0.0)
        for client in simulation.evaluated.tolist() if clients is None else clients:
            place, data = client, programs.data
            if simulation.on_demand:
                place, data = 0, single_client(simulation.problem, client, simulation.seed)[0]
            model = _tuned(programs.round, steps, shared, jnp.int32(place), data, rate)
            yield jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)


@partial(jax.jit, static_argnums=(0, 1))
def _tuned(round: Round, rule: FineTune, shared: Tree, client: jax.Array, data: Data, rate: jax.Array) -> Tree:
    return tuned(round, rule, shared, client, data, rate)
