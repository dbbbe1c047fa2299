"""What the processes of one simulation tell each other. On one host there is one process; on several, one on each.

All processes run the same program in the same order. Process 0 reads and writes files, and decides what depends on a
clock or on a machine; the functions here tell the others. With one process, each function returns what it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from polyfed.core.errors import PolyfedError
from polyfed.core.startup import start
from polyfed.core.trees import Tree
from polyfed.engine.hosts.team import MEETING_SECONDS, is_loopback

Decision = TypeVar("Decision")
HEARTBEAT_SECONDS = 60
"""After so many seconds without a sign of life a process counts as lost."""


def connect(coordinator: str, processes: int, index: int) -> None:
    """Make this process number `index` of `processes`; `coordinator` is HOST:PORT of process 0. Call before JAX runs.

    Afterwards `simulate`, called in all processes with the same arguments, spreads the clients over all of them.
    """
    if not 0 <= index < processes:
        raise PolyfedError(f"process {index} does not exist; there are {processes}, numbered from 0")
    start()
    host, _, port = coordinator.rpartition(":")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            index,
            cluster_detection_method="deactivate",
            initialization_timeout=MEETING_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
            coordinator_bind_address=coordinator if is_loopback(host) else f"[::]:{port}",
        )
    except RuntimeError as error:
        raise PolyfedError(f"process {index} of {processes} cannot join the others at {coordinator}: {error}") from None


def count() -> int:
    """How many processes there are. Asking does not start JAX."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this process is the one that reads and writes files."""
    return count() == 1 or jax.process_index() == 0


def meet() -> None:
    """Wait until every process is here, for as long as that takes."""
    gathered(np.zeros(1))


def sent(tree: Tree, source: int = 0) -> Tree:
    """The arrays of process `source`, in every process; the others pass arrays of the same shapes and types."""
    if count() == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    ends = np.cumsum([array.nbytes for array in arrays])
    if not arrays or not ends[-1]:
        return tree
    flat = np.zeros(ends[-1], np.uint8)
    if jax.process_index() == source:
        np.concatenate([_bytes(array) for array in arrays], out=flat)
    flat = np.asarray(_programs()[0](_across(flat[None])).addressable_data(0))
    parts = zip(np.split(flat, ends[:-1]), arrays, strict=True)
    return jax.tree.unflatten(structure, [part.view(array.dtype).reshape(array.shape) for part, array in parts])


def gathered(values: np.ndarray) -> np.ndarray:
    """The values of all processes, stacked along a leading axis; they have the same shape in each."""
    if count() == 1:
        return values[None]
    whole = _programs()[1](_across(_bytes(values)[None])).addressable_data(0)
    return np.ascontiguousarray(whole).view(values.dtype).reshape(-1, *values.shape)


def agreed(decide: Callable[[], Decision]) -> Decision:
    """What `decide` returns in process 0, in every process: a value that JSON can hold, or a PolyfedError."""
    if count() == 1:
        return decide()
    message: dict[str, object] = {}
    if is_first():
        try:
            message = {"said": decide()}
        except PolyfedError as error:
            message = {"error": str(error)}
    text = np.frombuffer(json.dumps(message).encode(), np.uint8)
    length = int(sent(np.array(len(text))))
    text = sent(np.resize(text, 1 << max(8, length - 1).bit_length()))[:length]
    received = json.loads(text.tobytes())
    if "error" in received:
        raise PolyfedError(received["error"])
    return received["said"]


def refuse_different(run: Mapping[str, object]) -> None:
    """End every process with one sentence unless all were given the same run."""
    if count() == 1:
        return
    own = json.loads(json.dumps(run))
    theirs = agreed(lambda: run)
    other = next((key for key in sorted(set(own) | set(theirs)) if own.get(key) != theirs.get(key)), "")
    named = np.zeros(64, np.uint8)
    named[: len(other.encode()[:64])] = np.frombuffer(other.encode()[:64], np.uint8)
    for index, name in enumerate(gathered(named)):
        if name.any():
            key = name.tobytes().rstrip(b"\0").decode(errors="ignore")
            raise PolyfedError(f"process {index} was not given the same run as process 0: {key} differs")


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _across(row: np.ndarray) -> jax.Array:
    """An array with one row per process, which lies on a device of that process."""
    shape, place = (count(), *row.shape[1:]), NamedSharding(_mesh(), PartitionSpec("hosts"))
    return jax.make_array_from_single_device_arrays(shape, place, [jax.device_put(row, jax.local_devices()[0])])


@cache
def _mesh() -> Mesh:
    first = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh(np.array([first[index] for index in sorted(first)]), ("hosts",))


@cache
def _programs() -> tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]:
    """Two programs on an array with one row per process: every process gets the sum of the rows, or all of them."""
    place = NamedSharding(_mesh(), PartitionSpec())
    return (
        jax.jit(lambda rows: rows.sum(axis=0, dtype=rows.dtype), out_shardings=place),
        jax.jit(lambda rows: rows, out_shardings=place),
    )
