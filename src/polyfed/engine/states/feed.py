"""The rows of a population on the devices: those of a few clients at a time, read while others are computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import aligned as memory
from polyfed.core import randomness
from polyfed.data import Population
from polyfed.engine.devices.layout import SAME, Layout
from polyfed.engine.placement import resident
from polyfed.engine.programs import Programs
from polyfed.engine.round.records import Data, Shard
from polyfed.problem.objective import Examples
from polyfed.problem.problem import SPLITS, DType, Problem, precision

AHEAD = 2
"""The most cohorts whose rows are held for later."""


class Fed(NamedTuple):
    """Clients on the devices, as the data counts them, and that data."""

    clients: jax.Array
    data: Data
    splits: dict[str, Shard]


class Feed:
    """Brings clients' rows to the devices, where everybody's are not there already."""

    def __init__(self, programs: Programs, dtype: DType) -> None:
        self.programs = programs
        self.dtype: DType = dtype
        self._reader = ThreadPoolExecutor(1, "polyfed-rows")
        self._begun: dict[tuple[bool, bytes], Future[Fed]] = {}
        self._latest: dict[bool, tuple[bytes, Fed]] = {}

    @property
    def on_demand(self) -> bool:
        return self.programs.data.numbers is not None

    @property
    def client_bytes(self) -> int:
        """The most that a client's rows take on a device, where they come to it with the client."""
        if not self.on_demand:
            return 0
        federation = self.programs.problem.federation
        x, y = self.programs.problem.as_examples(federation.like.x, federation.like.y)
        row = sum(prod(array.shape[1:]) * array.dtype.itemsize for array in (x, y))
        return row * sum(int(federation.split(name).sizes.max()) for name in SPLITS)

    def of(self, clients: np.ndarray, test: bool = False) -> Fed:
        """The rows of (devices, slots) clients; with `test`, those of all splits, else of the ones that train."""
        programs = self.programs
        if not self.on_demand:
            return Fed(programs.placed(clients.reshape(-1)), programs.data, programs.splits)
        key = clients.tobytes()
        if test not in self._latest or self._latest[test][0] != key:
            begun = self._begun.pop((test, key), None)
            self._latest[test] = key, self._read(clients, test) if begun is None else begun.result()
        return self._latest[test][1]

    def without_rows(self, clients: np.ndarray) -> Fed:
        """(devices, slots) clients without their rows."""
        return Fed(self.programs.placed(clients.reshape(-1)), self.programs.data, {})

    def begin(self, clients: np.ndarray, test: bool = False) -> None:
        """Read these clients' rows in a thread: they will be asked for next."""
        key = test, clients.tobytes()
        if not self.on_demand or key in self._begun:
            return
        while len(self._begun) >= AHEAD:
            self._begun.pop(next(iter(self._begun))).cancel()
        self._begun[key] = self._reader.submit(self._read, clients, test)

    def _read(self, clients: np.ndarray, test: bool) -> Fed:
        programs = self.programs
        slots = np.tile(np.arange(clients.shape[1], dtype=np.int32), clients.shape[0])
        with precision(self.dtype):  # which goes by the thread
            data, splits = data_of(programs.problem, clients, test, programs.placed, programs.data.seed)
            return Fed(programs.placed(slots), data, splits)


def data_on(problem: Problem, layout: Layout, seed: int, in_blocks: bool) -> tuple[Data, dict[str, Shard]]:
    """What programs read: everybody's rows on the devices; of a population those of one client, of the same shapes."""
    if not isinstance(problem.federation, Population):
        return resident(problem, layout, seed, in_blocks)
    client = single_client(problem, 0, seed)
    return jax.tree.map(lambda leaf: layout.placed(np.asarray(leaf), SAME), client)


def data_of(
    problem: Problem, clients: np.ndarray, test: bool, placed: Callable[[np.ndarray], jax.Array], seed: jax.Array
) -> tuple[Data, dict[str, Shard]]:
    """The data of (devices, slots) clients."""
    numbers = clients.reshape(-1).astype(np.int32)
    ids = randomness.client_ids([problem.federation.clients[client] for client in numbers.tolist()])
    splits = jax.tree.map(placed, gathered(problem, clients, test))
    return Data(splits["train"], placed(ids), seed, None, splits.get("validation"), placed(numbers)), splits


def single_client(problem: Problem, client: int, seed: int) -> tuple[Data, dict[str, Shard]]:
    """The data of one client, in which it is client 0."""
    return data_of(problem, np.full((1, 1), client), True, jnp.asarray, jnp.uint32(seed))


def gathered(problem: Problem, clients: np.ndarray, test: bool) -> dict[str, Shard]:
    """The rows of (devices, slots) clients, split by split; each device's begin at the same place of the arrays.

    There is room for the largest clients of the federation, so that the shapes are the same for any clients.
    """
    federation, (devices, slots) = problem.federation, clients.shape
    names = [name for name in SPLITS if federation.split(name).rows and (test or name != "test")]
    like = problem.as_examples(federation.like.x, federation.like.y)
    rooms = {name: room_for(problem, name, slots) for name in names}
    shards = {name: _blank(devices, slots, rooms[name], like) for name in names}
    for device, mine in enumerate(clients):
        used = dict.fromkeys(names, 0)
        for client in dict.fromkeys(mine.tolist()):
            rows, here = federation.read(client), device * slots + np.flatnonzero(mine == client)
            for name in names:
                (inputs, targets), starts, sizes = shards[name]
                x, y = problem.as_examples(*rows[name])
                first = device * rooms[name] + used[name]
                inputs[first : first + len(y)], targets[first : first + len(y)] = x, y
                starts[here], sizes[here] = used[name], len(y)
                used[name] += len(y)
        for name in names:  # nothing reads the rest, which is set all the same
            for array in shards[name].examples:
                array[device * rooms[name] + used[name] : (device + 1) * rooms[name]] = 0
    return shards


def _blank(devices: int, slots: int, room: int, like: tuple[np.ndarray, np.ndarray]) -> Shard:
    """A shard to be filled in, with room for so many rows on each device."""
    x, y = (memory.empty((devices * room, *array.shape[1:]), array.dtype) for array in like)
    starts, sizes = (np.zeros(devices * slots, np.int32) for _ in range(2))
    return Shard(Examples(x, y), starts, sizes)  # pyright: ignore[reportArgumentType]


def room_for(problem: Problem, split: str, slots: int) -> int:
    """The rows that so many clients can have together, and a few so that the next device's begin at an even address."""
    key = ("room", split, slots)
    if key not in problem.placed:
        sizes = problem.federation.split(split).sizes
        largest = sizes if slots >= len(sizes) else np.partition(sizes, -slots)[-slots:]
        problem.placed[key] = -(-max(1, int(largest.sum())) // memory.ALIGNMENT) * memory.ALIGNMENT
    return problem.placed[key]
