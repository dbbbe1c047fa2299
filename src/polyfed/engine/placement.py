"""A problem's rows on the devices, put there once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.engine.devices.layout import BY_CLIENT, BY_HOST, SAME, Layout
from polyfed.engine.round.records import Data, Shard
from polyfed.problem.objective import BLOCK, Examples
from polyfed.problem.problem import SPLITS, Problem

PADDING = 1.25
"""Rows are laid out client by client where that takes at most so many times their number."""


def resident(problem: Problem, layout: Layout, seed: int, in_blocks: bool) -> tuple[Data, dict[str, Shard]]:
    """The problem's data on the layout's devices: one copy on a CPU, whose devices share memory.

    A host has the examples of its own clients. `in_blocks`: a second copy of the training rows, client by client, if
    padding it costs little.
    """
    key = ("data", layout, str(jnp.result_type(float)))
    if key not in problem.placed:
        problem.placed[key] = {
            name: _shard(problem, name, layout) for name in SPLITS if len(problem.federation.split(name).y)
        }
    splits = problem.placed[key]
    sizes = problem.federation.train.sizes
    blocks = None
    if in_blocks and max(sizes) <= BLOCK and len(sizes) * max(sizes) <= PADDING * sum(sizes):
        if (key, "blocks") not in problem.placed:
            problem.placed[key, "blocks"] = _blocks(problem, layout)
        blocks = problem.placed[key, "blocks"]
    if (key, "ids") not in problem.placed:
        problem.placed[key, "ids"] = layout.placed(problem.client_ids, SAME)
    if problem.placed.get((key, "seed"), [None])[0] != seed:
        problem.placed[key, "seed"] = seed, layout.placed(np.uint32(seed), SAME)
    ids, number = problem.placed[key, "ids"], problem.placed[key, "seed"][1]
    return Data(splits["train"], ids, number, blocks, splits.get("validation")), splits


def _blocks(problem: Problem, layout: Layout) -> Examples:
    """The training rows as (clients, rows, ...): short clients are padded with zeros, and so are the devices."""
    offsets, sizes = problem.federation.train.offsets, problem.federation.train.sizes

    def laid_out(flat: np.ndarray) -> jax.Array:
        blocks = np.zeros((layout.host_clients, max(sizes), *flat.shape[1:]), flat.dtype)
        for place, client in enumerate(layout.clients):
            blocks[place, : sizes[client]] = flat[offsets[client] : offsets[client] + sizes[client]]
        return layout.placed(blocks, BY_CLIENT)

    x, y = problem.examples("train")
    return Examples(laid_out(x), laid_out(y))


def _shard(problem: Problem, split: str, layout: Layout) -> Shard:
    """A split's rows of this host's clients; a client's `starts` counts from the first row of its host."""
    part, (x, y) = problem.federation.split(split), problem.examples(split)
    firsts = _firsts(layout)
    starts = part.offsets[:-1] - np.repeat(part.offsets[firsts[:-1]], np.diff(firsts))
    return Shard(
        Examples(_filled(x, part.offsets, layout), _filled(y, part.offsets, layout)),
        layout.placed(starts.astype(np.int32), SAME),
        layout.placed(part.sizes.astype(np.int32), SAME),
    )


def relabelled(problem: Problem, layout: Layout, data: Data, targets: np.ndarray) -> Data:
    """The same rows to train on with other targets; what is measured keeps its own."""
    placed = _filled(targets, problem.federation.train.offsets, layout)
    return data._replace(train=data.train._replace(examples=Examples(data.train.examples.x, placed)), blocks=None)


def _firsts(layout: Layout) -> np.ndarray:
    """The first client of each host, and the end."""
    return np.minimum(np.arange(layout.hosts + 1) * layout.host_clients, layout.population)


def _filled(rows: np.ndarray, offsets: np.ndarray, layout: Layout) -> jax.Array:
    """The rows of each host's clients on its devices; a host with few is filled up."""
    mine = slice(offsets[layout.clients.start], offsets[layout.clients.stop])
    spare = int(np.max(np.diff(offsets[_firsts(layout)]))) - (mine.stop - mine.start)
    more = [(0, spare)] + [(0, 0)] * (rows.ndim - 1)
    return layout.placed(np.pad(rows[mine], more) if spare else rows[mine], BY_HOST)
