"""What a method does in every round, found out by tracing it: what it sends, and which model its clients deploy."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from polyfed.algorithms.contract import Algorithm, Server, State, global_model
from polyfed.core import trees
from polyfed.core.trees import Tree
from polyfed.engine.measure import deploys_arrays_of, deploys_shared, refined, same_arrays
from polyfed.engine.programs import TRACED, Programs, shapes_of
from polyfed.engine.robust.singles import check_method
from polyfed.engine.round.records import Data, wire_bits


class Facts(NamedTuple):
    """What a method does, as far as it is the same in every round."""

    wire_up: int
    """the bits of one client's upload that follow from its shapes"""
    wire_down: int
    """the bits of one broadcast"""
    personalizes: bool
    """whether clients deploy models of their own"""
    uploads: bool
    """whether anything is sent to the server"""
    refines: bool
    """whether clients take last steps on their rows before they deploy"""
    own_share: float | None
    """the share of the own model in what a client deploys, where the method need not say it"""


def facts_of(programs: Programs, server: Server, start: State) -> Facts:
    """What follows from what the method does with its inputs: it is traced once for a task; nothing is computed."""
    round, inputs = programs.round, (programs.method, programs.data, server, start)

    def traced() -> Facts:
        facts: list[Facts] = []

        def look(*inputs: Tree) -> None:
            facts.append(_looked_up(programs, *inputs))

        jax.eval_shape(look, *inputs)
        return facts[0]

    return TRACED.get(("facts", round, *shapes_of(inputs)), traced)


def _looked_up(programs: Programs, method: Algorithm, data: Data, server: Server, state: State) -> Facts:
    """The facts, from the arrays of a trace."""
    round, nobody, broadcast = programs.round, jnp.int32(0), method.broadcast(server)
    upload, _ = round.one_client(method, broadcast, data, nobody, nobody, state)
    if programs.singles is not None:
        check_method(method, server, upload)
    model = method.personal(server, state)
    refines = not same_arrays(refined(round, method, model, nobody, data), model)
    share = None
    if deploys_arrays_of(method, server, state, state):
        share = 1.0
    elif not refines and deploys_arrays_of(method, server, state, global_model(server)):
        share = 0.0
    shared = deploys_shared(method, server, state)
    sends = trees.count(upload.values) > 0
    return Facts(wire_bits(upload), trees.bits(broadcast), not shared, sends, refines, share)
