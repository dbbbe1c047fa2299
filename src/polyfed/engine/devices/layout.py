"""The devices that clients are spread over, and how many clients each takes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from polyfed.core.errors import PolyfedError
from polyfed.core.startup import start
from polyfed.core.trees import Tree
from polyfed.engine import hosts

Device = Any
"""A device of JAX, whose type has no public name that type checkers take."""
Devices = int | Sequence[Device]
"""How many devices, the first of each process, or which."""
HOSTS, DEVICES = "hosts", "devices"
AXIS = (HOSTS, DEVICES)
"""All devices of all hosts: the axis that clients are spread over."""
SAME, BY_HOST, BY_CLIENT = PartitionSpec(), PartitionSpec(HOSTS), PartitionSpec(AXIS)
"""How an array lies on the devices: a copy on each, a copy of its host's part, or a part of its own."""
CHUNK_NUMBERS = 1_000_000
"""On a CPU, a chunk of clients whose models together have about this many numbers keeps the caches warm."""
CHUNK_BYTES = 64 << 20
"""On a CPU, the most that the examples of one chunk's step may take, or what the model makes of them."""
BATCH_BYTES = 256 << 10
"""The same where a step takes a batch: what is gathered for it should still be in the cache when it is used."""
EVAL_BYTES = 64 << 20
"""The most that a model may make of the rows of a client that an evaluation takes at a time."""
ACCELERATOR_SHARE = 8
"""On an accelerator, a chunk's working memory (models, gradients, examples) may take one part in this many."""


@dataclass(frozen=True)
class Layout:
    """How the clients lie on the devices: each owns a contiguous block of `clients_each` clients of the state store.

    The mesh is (hosts, devices of each). A client's state and examples are on its own host alone.
    """

    mesh: Mesh
    population: int

    @property
    def devices(self) -> int:
        return self.mesh.size

    @property
    def device(self) -> Device:
        """The first device of this process."""
        return self.mesh.local_mesh.devices.flat[0]

    @property
    def hosts(self) -> int:
        return self.mesh.devices.shape[0]

    @property
    def clients_each(self) -> int:
        return ceil(self.population / self.devices)

    @property
    def host_devices(self) -> int:
        """The devices of each host."""
        return self.mesh.devices.shape[1]

    @property
    def host_clients(self) -> int:
        """The clients of a host, with those that only fill up its devices."""
        return self.clients_each * self.host_devices

    @property
    def here(self) -> slice:
        """This process's part of what has an entry per client, filled up."""
        first = self.device.process_index if self.hosts > 1 else 0
        return slice(first * self.host_clients, (first + 1) * self.host_clients)

    @property
    def clients(self) -> range:
        """The clients of this process."""
        return range(min(self.here.start, self.population), min(self.here.stop, self.population))

    def owned(self, clients: np.ndarray) -> np.ndarray:
        """Which of these clients are this process's."""
        return (clients >= self.here.start) & (clients < self.here.stop)

    def own(self, slots: np.ndarray) -> np.ndarray:
        """Of (devices, slots), those of this process."""
        first = self.here.start // self.clients_each
        return slots[first : first + self.host_devices]

    def by_host(self, clients: np.ndarray) -> list[np.ndarray]:
        """The clients of each host, of these."""
        return [clients[clients // self.host_clients == host] for host in range(self.hosts)]

    def at_home(self, clients: np.ndarray, most: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Clients in ascending order as (devices, slots), each on its own host, at most so many slots at a time.

        With them, which slots do not only fill up the devices: a host's first ones, in the clients' order.
        """
        own = self.by_host(clients)
        longest = max(len(mine) for mine in own)
        slots = -(-longest // self.host_devices)
        slots = slots if most is None else min(most, slots)
        step = slots * self.host_devices
        for first in range(0, longest, max(1, step)):
            filled, real = [], []
            for host, mine in enumerate(own):
                part = mine[first : first + step]
                nobody = np.array([min(host * self.host_clients, self.population - 1)], clients.dtype)
                filled.append(np.resize(part if len(part) else nobody, (self.host_devices, slots)))
                real.append((np.arange(step) < len(part)).reshape(self.host_devices, slots))
            yield np.concatenate(filled), np.concatenate(real)

    def placed(self, part: Tree, spec: PartitionSpec) -> Tree:
        """An array on all devices, of which this process gives its part: `BY_CLIENT`, `BY_HOST` or `SAME`.

        Where there is one host, several arrays may go in one call, as a tree.
        """
        mine = jax.device_put(part, NamedSharding(self.mesh.local_mesh, spec))
        if self.hosts == 1:
            return mine
        shape = (self.hosts * mine.shape[0], *mine.shape[1:]) if spec else mine.shape
        shards = [shard.data for shard in mine.addressable_shards]
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self.mesh, spec), shards)

    def fetched(self, array: jax.Array) -> np.ndarray:
        """All of an array with an entry per client, or this process's copy of one that is the same everywhere."""
        if array.is_fully_addressable or array.is_fully_replicated:
            return np.asarray(array)
        return hosts.gathered(self.local(array)).reshape(-1, *array.shape[1:])

    def local(self, array: jax.Array) -> np.ndarray:
        """This process's part of an array with an entry per client."""
        if self.hosts == 1:
            return np.asarray(array)
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return np.concatenate([np.asarray(shard.data) for shard in shards])


def layout(population: int, devices: Devices | None) -> Layout:
    """Spread `population` clients over all devices of all processes, the first few of each, or the given ones.

    Every process has as many of them as any other, and at least one.
    """
    start()
    if devices is None or isinstance(devices, int):
        processes = hosts.count()
        owned = [[device for device in jax.devices() if device.process_index == host] for host in range(processes)]
        each = min(len(own) for own in owned)
        if devices is not None and not 1 <= devices <= each:
            raise PolyfedError(f"devices must be from 1 to {each}, the devices that JAX has here; found {devices}")
        each = max(1, min(devices or each, ceil(population / processes)))
        return Layout(Mesh(np.array([own[:each] for own in owned]), AXIS), population)
    if hosts.count() > 1:
        raise PolyfedError(f"devices must be a number where there are several processes, found {devices!r}")
    chosen = list(devices)[: max(1, population)]
    return Layout(Mesh(np.array([chosen]), AXIS), population)


def made_bytes(apply: Callable[..., jax.Array], params: Tree, x: jax.ShapeDtypeStruct) -> int:
    """What a model makes of one row of x: the bytes of its matrix products and of the patches that go into them.

    What it makes of its weights alone is the same for any number of rows, and does not count.
    """
    many = 64

    def total(count: int) -> int:
        given = jax.ShapeDtypeStruct((count, *x.shape[1:]), x.dtype)
        return _products(jax.make_jaxpr(apply)(params, given).jaxpr)

    return (total(2 * many) - total(many)) // many


def _products(program: Any) -> int:
    """Elementwise work is fused into its neighbours and does not count; a loop counts as often as it runs.

    Of branches, the platforms' ways to compute the same, the largest counts.
    """
    total = 0
    for equation in program.eqns:
        if equation.primitive.name in ("dot_general", "concatenate", "conv_general_dilated"):
            total += sum(out.aval.size * out.aval.dtype.itemsize for out in equation.outvars)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inner = [times * _products(inner) for inner in jaxprs_in_params(equation.params)]
        total += max(inner) if equation.primitive.name == "cond" else sum(inner)
    return total


def chunk_size(
    clients: int,
    numbers: int,
    example_bytes: int,
    device: Device,
    chosen: int | None = None,
    most_bytes: int = CHUNK_BYTES,
) -> int:
    """How many of a device's `clients` to run side by side.

    A CPU likes few (its caches hold a few models), an accelerator likes all that fit its memory. `numbers` is the size
    of a client's model and state, `example_bytes` what one client's step reads, or makes of it: on a CPU, a chunk's at
    most `most_bytes`.
    """
    if chosen is not None:
        if not isinstance(chosen, int) or chosen < 1:
            raise PolyfedError(f"chunk must be a whole number, at least 1, found {chosen!r}")
        return min(chosen, clients)
    few = 2
    if device.platform == "cpu":
        few = 1 if example_bytes > most_bytes else 2  # where one client's examples leave the cache, two gain nothing
        target = min(CHUNK_NUMBERS // max(1, numbers), most_bytes // max(1, example_bytes))
        target = min(clients, max(few, target))
        most = min(clients, target + target // 4)
    else:
        memory = (device.memory_stats() or {}).get("bytes_limit", 16 << 30)
        target = most = min(clients, max(2, memory // ACCELERATOR_SHARE // max(1, 16 * numbers + 4 * example_bytes)))
    least = min(target, max(few, ceil(target / 2)))

    def waste(size: int) -> tuple[int, bool, int]:
        """The room of all chunks; of sizes that need as much, those up to the target go first, the nearest first."""
        return ceil(clients / size) * size, size > target, abs(size - target)

    return min(range(least, most + 1), key=waste)
