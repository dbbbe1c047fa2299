"""Clients that take unequal numbers of steps: those of a chunk wait for the one that takes most."""

from __future__ import annotations

import numpy as np

from polyfed.engine.devices.layout import Device, Layout
from polyfed.engine.participation import Sampling

ROUNDS = 16
"""The rounds that are drawn to see what cohorts look like."""
CPU, ACCELERATOR = (4, 10_000), (4_000, 40_000)
"""A chunk's step costs as much as so many clients of a tiny model, beside its own; half of it where parameters times
rows of a batch are so many. From times of chunks on a core of an AMD EPYC, and of (a) and (e) on an H200, see
docs/benchmarks.md."""
LENT_BYTES = 64 << 20
"""The most that all clients' states may take to be lent to other devices in every round."""


def client_steps(sizes: np.ndarray, epochs: int | None, batch: int | str) -> np.ndarray | None:
    """The steps that each client takes in a round; None where all take as many."""
    if epochs is None or batch == "full":
        return None
    steps = epochs * -(-np.asarray(sizes) // batch)
    return steps if np.any(steps != steps[0]) else None


def typical_steps(steps: np.ndarray, layout: Layout, sampling: Sampling, dealt: bool) -> np.ndarray:
    """(rounds, devices, slots): the steps of the clients of each device, most first, as rounds deal them out.

    Where all take part, each is on its own device, unless they are `dealt` out to all of them.
    """
    devices = layout.devices
    if sampling.full and not dealt:
        filled = np.zeros(devices * layout.clients_each, steps.dtype)
        filled[: len(steps)] = steps
        return -np.sort(-filled.reshape(1, devices, layout.clients_each))
    count = max(1, round(sampling.expected))
    rounds = 1 if sampling.full else ROUNDS
    drawn = steps[None] if sampling.full else np.random.default_rng(0).choice(steps, (rounds, count))
    filled = np.zeros((rounds, -(-count // devices) * devices), steps.dtype)
    filled[:, :count] = -np.sort(-drawn)
    return filled.reshape(rounds, -1, devices).swapaxes(1, 2)


def fixed_cost(device: Device, numbers: int, batch: int) -> float:
    """What a chunk's step costs beside its clients, in clients: those of a model with so many parameters."""
    most, half = CPU if device.platform == "cpu" else ACCELERATOR
    return most * half / (half + numbers * batch)


def best_chunk(steps: np.ndarray, most: int, fixed: float) -> int:
    """The number of clients to run side by side, at most `most`, that ends first; of equal ones the largest.

    `steps`: as `typical_steps` gives them; `fixed`: see `fixed_cost`.
    """
    slots = steps.shape[-1]

    def cost(chunk: int) -> float:
        firsts = np.minimum(np.arange(0, slots, chunk), max(0, slots - chunk))  # as the round cuts them
        return float(np.mean(np.max(np.sum(steps[:, :, firsts], axis=-1), axis=-1))) * (fixed + chunk)

    most = min(most, slots)
    sizes = {*range(1, min(most, 16) + 1), *(most >> shift for shift in range(most.bit_length()))}
    return min(sorted(sizes, reverse=True), key=cost)
