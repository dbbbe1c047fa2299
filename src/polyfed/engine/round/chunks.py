"""The clients of a device, a chunk at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from polyfed.algorithms.contract import State
from polyfed.core.trees import Tree
from polyfed.engine.devices.layout import AXIS, Layout

FEW = 8
"""The most clients of a chunk whose uploads are added up one by one."""


class Chunk(NamedTuple):
    """A chunk of so many clients, one after another or in an order that is given; the last is moved back to fit."""

    number: jax.Array
    clients: int
    size: int
    order: jax.Array | None = None

    @property
    def first(self) -> jax.Array:
        return jnp.minimum(self.number * self.size, self.clients - self.size)

    @property
    def fresh(self) -> jax.Array:
        """Which of its clients no earlier chunk had."""
        return self.first + jnp.arange(self.size) >= self.number * self.size

    def of(self, tree: Tree) -> Tree:
        """Their part of arrays with an entry per client."""
        if self.order is None:
            return jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, self.first, self.size), tree)
        return jax.tree.map(lambda leaf: leaf[self._places], tree)

    def put(self, tree: Tree, part: Tree) -> Tree:
        """Such arrays with their part replaced."""
        if self.order is None:
            return jax.tree.map(lambda a, b: lax.dynamic_update_slice_in_dim(a, b, self.first, 0), tree, part)
        return jax.tree.map(lambda leaf, new: leaf.at[self._places].set(new, unique_indices=True), tree, part)

    @property
    def _places(self) -> jax.Array:
        assert self.order is not None
        return lax.dynamic_slice_in_dim(self.order, self.first, self.size)


def owned(layout: Layout) -> jax.Array:
    """The clients that this device owns; the last device repeats the last client where it has too few."""
    first = lax.axis_index(AXIS) * layout.clients_each
    return jnp.minimum(first + jnp.arange(layout.clients_each), layout.population - 1)


def over_clients(
    function: Callable[..., Tree], clients: jax.Array, chunk: int, states: State, sizes: jax.Array | None = None
) -> Tree:
    """`function(client, state)` of each of this device's clients, a chunk at a time.

    With `sizes`, the work that each client of the federation makes, those of a chunk have like ones.
    """
    count = len(clients)
    chunk = min(chunk, count)
    shape = jax.eval_shape(jax.vmap(function), clients, states)  # a model that is shared gets its client axis, too
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    order = None if sizes is None else jnp.argsort(-sizes[clients])

    def body(index: jax.Array, results: Tree) -> Tree:
        piece = Chunk(index, count, chunk, order)
        return piece.put(results, jax.vmap(function)(piece.of(clients), piece.of(states)))

    return lax.fori_loop(0, -(-count // chunk), body, blank)


def of_each(function: Callable[..., Tree], shared: tuple[Tree, ...], own: tuple[Tree, ...]) -> Tree:
    """`function(*shared, *own)` of every client of a chunk side by side; arrays of `own` have an entry for each.

    Where this is mapped over the runs of a sweep, clients stay the outer axis. Runs that share a client's rows then
    lie next to each other, and their products with these rows are one.
    """
    leaves, structure = jax.tree.flatten((shared, own))
    by_client = [None] * len(jax.tree.leaves(shared)) + [0] * len(jax.tree.leaves(own))

    def of_client(*leaves: jax.Array) -> Tree:
        shared, own = jax.tree.unflatten(structure, leaves)
        return function(*shared, *own)

    @custom_vmap
    def everyone(*leaves: jax.Array) -> Tree:
        return jax.vmap(of_client, in_axes=by_client)(*leaves)

    @everyone.def_vmap
    def _(_: int, mapped: Sequence[bool], *leaves: jax.Array) -> tuple[Tree, Tree]:
        runs = [0 if is_mapped else None for is_mapped in mapped]
        clients = [place if place is None else int(m) for place, m in zip(by_client, mapped, strict=True)]
        results = jax.vmap(jax.vmap(of_client, in_axes=runs), in_axes=clients, out_axes=1)(*leaves)
        return results, jax.tree.map(lambda _: True, results)

    return everyone(*leaves)


def keep(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    """Zero where the mask says so, whatever stood there: NaN too."""
    return select(mask, leaf, jnp.zeros_like(leaf))


def add_up(leaf: jax.Array) -> jax.Array:
    """The sum over a chunk's clients; of a few, one by one: on a CPU that is several times as fast as a reduction."""
    return reduce(operator.add, leaf) if len(leaf) <= FEW else jnp.sum(leaf, axis=0)


def select(mask: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Client by client, a or b."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)
