"""Client state on the devices: each owns a block of clients, and lends their states to the device of its host that runs
them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.algorithms.contract import State
from polyfed.engine.devices.layout import AXIS, DEVICES


def take(states: State, clients: jax.Array, taken: jax.Array) -> State:
    """The states of this device's slots. `clients` and `taken` are (devices, slots): those of its host."""

    def of_leaf(leaf: jax.Array) -> jax.Array:
        place, mine = _owned(leaf, clients, taken)
        if clients.shape[0] == 1:
            return leaf[place[0]]
        flat = leaf.astype(jnp.uint8) if leaf.dtype == bool else leaf
        mask = mine.reshape(mine.shape + (1,) * (leaf.ndim - 1))
        lent = jnp.where(mask, flat[place], jnp.zeros((), flat.dtype))
        return lax.psum_scatter(lent, DEVICES, scatter_dimension=0).astype(leaf.dtype)

    return jax.tree.map(of_leaf, states)


def put(states: State, clients: jax.Array, taken: jax.Array, new: State) -> State:
    """The store after this device's slots, and those of the others of its host, have given their states back."""

    def of_leaf(leaf: jax.Array, returned: jax.Array) -> jax.Array:
        place, mine = _owned(leaf, clients, taken)
        everyone = lax.all_gather(returned, DEVICES)
        return leaf.at[jnp.where(mine, place, leaf.shape[0])].set(everyone, mode="drop")

    return jax.tree.map(of_leaf, states, new)


def _owned(leaf: jax.Array, clients: jax.Array, taken: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where in this device's block each client lies, and whether it lies there at all."""
    rows = leaf.shape[0]
    place = clients - lax.axis_index(AXIS) * rows
    mine = taken & (place >= 0) & (place < rows)
    return jnp.where(mine, place, 0), mine
