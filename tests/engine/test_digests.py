"""Every method ends where it ended when its numbers were last recorded: server, client states and history.

`python -m tests.engine.test_digests` compares the bits on the machine where they were recorded, and with `--record`
writes them anew. The tests compare numbers, as bits differ between processors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY, Algorithm
from tests.conftest import KINDS, few, small_method, unequal_clients

RECORD = Path(__file__).with_name("digests.json")
PLACES = {
    "one device": {"devices": 1},
    "two devices": {"devices": 2},
    "streamed, one device": {"devices": 1, "store": "host"},
    "streamed, two devices": {"devices": 2, "store": "host"},
}
TWO = ("two devices", "streamed, one device")
COUNTERS = ("round", "iterations", "bits_up", "bits_down")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "apfl, every step": ("apfl", {"adaptive": "step"}),
    "apfl, fixed weight": ("apfl", {"adaptive": "off", "weighting": "size"}),
    "apfl, validation rows": ("apfl", {"alpha_on": "validation"}),
    "apfl, weighted output": ("apfl", {"output": "weighted", "output_offset": 3.0}),
    "diana, memory of gradients": ("diana", {"memory": "gradient"}),
    "fedavg, epochs and Adam": ("fedavg", {"local_epochs": 2, "server_optimizer": "adam", "server_lr": 0.01}),
    "fedbc, fine-tuned": ("fedbc", {"adapt_steps": 2, "dual_lr": 0.1, "multiplier": 0.1}),
    "fedbc, own start": ("fedbc", {"start": "own", "dual_lr": 0.1, "optimizer": "adam"}),
    "flix, average": ("flix", {"start": "average", "local_lr": None, "local_steps": 1}),
    "flix, one gradient": ("flix", {"local_lr": None, "local_steps": 1}),
    "perfedavg, first-order": ("perfedavg", {"variant": "first-order"}),
    "perfedbc, own models": ("perfedbc", {"deploy": "own"}),
    "plsgd, output II": ("plsgd", {"output": "II"}),
    "plsgd, output III": ("plsgd", {"output": "III"}),
    "scafflix, gradient control": ("scafflix", {"control": "gradient"}),
    "scaffold, option I": ("scaffold", {"option": "I"}),
    "scafflix, plain": ("scafflix", {"trust": "never"}),
    "scaffnew, plain": ("scaffnew", {"trust": "never"}),
    "scaffold, plain": ("scaffold", {"trust": "never"}),
}
"""Options that lead through other lines of a method."""


def methods() -> dict[str, Algorithm]:
    """Each registered method with little local work, and its variants."""
    chosen: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in sorted(REGISTRY)} | VARIANTS
    return {label: small_method(name, **options) for label, (name, options) in chosen.items()}


def problem() -> pf.Problem:
    federation = pf.Federation.from_arrays(unequal_clients(), classes=3)
    return pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01)


def ending(problem: pf.Problem, method: Algorithm, place: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    """What a run ends with: all arrays of the server and the states, and the history but for the time."""
    result = pf.simulate(problem, method, rounds=6, participation=3, seed=5, eval_every=2, dtype="float64", **place)
    history = result.history.drop(columns="seconds")
    metrics = sorted(set(history) - set(COUNTERS))
    return {
        "server": [*map(np.asarray, jax.tree.leaves(result.simulation.server))],
        "states": [*map(np.asarray, jax.tree.leaves(result.client_state))],
        "history": [history[[*COUNTERS]].to_numpy(float), history[metrics].to_numpy(float)],
    }


def digest(ending: dict[str, list[np.ndarray]]) -> str:
    """The bits, whatever the order of the arrays."""
    parts = [f"{part} {leaf.dtype} {leaf.shape} {leaf.tobytes().hex()}" for part in ending for leaf in ending[part]]
    return hashlib.blake2b("\n".join(sorted(parts)).encode(), digest_size=16).hexdigest()


def numbers(ending: dict[str, list[np.ndarray]]) -> dict[str, list[list[float]]]:
    """The size, the norm and the products with two fixed vectors of every array, sorted by these."""
    return {part: sorted(_projected(leaf) for leaf in leaves) for part, leaves in ending.items()}


def _projected(leaf: np.ndarray) -> list[float]:
    flat = np.nan_to_num(np.ravel(leaf).astype(np.float64), nan=-12345.0)
    fixed = np.random.default_rng(flat.size).normal(size=(2, flat.size))
    return [float(flat.size), float(np.linalg.norm(flat)), *map(float, fixed @ flat)]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def shared() -> pf.Problem:
    return problem()


def cases() -> list[Any]:
    """Every registered method everywhere; its variants on one and two devices, resident and streamed."""
    every = [(label, place) for label in methods() for place in PLACES if label in REGISTRY or place in TWO]
    return few(every, *((label, TWO[number % 2]) for number, label in enumerate(KINDS)))


@pytest.mark.parametrize(("label", "place"), cases())
def test_a_method_ends_where_it_was_recorded_to_end(
    shared: pf.Problem, recorded: dict[str, Any], label: str, place: str
) -> None:
    ended, expected = numbers(ending(shared, methods()[label], PLACES[place])), recorded[label]["numbers"]
    for part in expected:
        assert len(ended[part]) == len(expected[part]), part
        for left, right in zip(ended[part], expected[part], strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12 * max(1.0, right[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record = parser.parse_args().record
    before = {} if record else json.loads(RECORD.read_text())
    found: dict[str, Any] = {}
    for label, method in methods().items():
        shared = problem()
        ends = {place: ending(shared, method, options) for place, options in PLACES.items()}
        bits = {place: digest(end) for place, end in ends.items()}
        found[label] = {"bits": bits, "numbers": numbers(ends["one device"])}
        if not record:
            same = [place for place in PLACES if bits[place] == before[label]["bits"][place]]
            print(f"{label}: same bits on {len(same)} of {len(PLACES)}", flush=True)
    if record:
        lines = [f"{json.dumps(label)}: {json.dumps(values)}" for label, values in found.items()]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
