"""The devices that clients are spread over, and how many clients each takes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from polyfed.errors import PolyfedError
from polyfed.startup import start

AXIS = "clients"
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
    """How the clients lie on the devices: each device owns a contiguous block of `rows` clients of the state store."""

    mesh: Mesh
    population: int

    @property
    def devices(self) -> int:
        return self.mesh.size

    @property
    def rows(self) -> int:
        return ceil(self.population / self.devices)

    @property
    def by_client(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @property
    def everywhere(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())


def layout(population: int, devices: int | Sequence[Any] | None) -> Layout:
    """Spread `population` clients over all local devices, the first few, or the given ones."""
    start()
    available = jax.local_devices()
    if devices is None:
        chosen = available
    elif isinstance(devices, int):
        if not 1 <= devices <= len(available):
            raise PolyfedError(
                f"devices must be from 1 to {len(available)}, the devices that JAX has here; found {devices}"
            )
        chosen = available[:devices]
    else:
        chosen = list(devices)
    chosen = chosen[: max(1, min(len(chosen), population))]
    return Layout(Mesh(np.array(chosen), (AXIS,)), population)


def made_bytes(apply: Callable[..., Any], params: Any, x: jax.ShapeDtypeStruct) -> int:
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
    device: Any,
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
    if device.platform == "cpu":
        target = min(CHUNK_NUMBERS // max(1, numbers), most_bytes // max(1, example_bytes))
        target = min(clients, max(2, target))
        most = min(clients, target + target // 4)
    else:
        memory = (device.memory_stats() or {}).get("bytes_limit", 16 << 30)
        target = most = min(clients, max(2, memory // ACCELERATOR_SHARE // max(1, 16 * numbers + 4 * example_bytes)))
    least = min(target, max(2, ceil(target / 2)))

    def waste(size: int) -> tuple[int, bool, int]:
        """The last chunk is filled up with clients that count for nothing; then, rather less than more than wanted."""
        return ceil(clients / size) * size, size > target, abs(size - target)

    return min(range(least, most + 1), key=waste)
