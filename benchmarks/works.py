"""The works that are measured, who runs them, and the ratios to reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyfed.bench.loops import FEDJAX, FLOWER, PEERS, PFL, POLYFED, TORCH, Environment
from polyfed.bench.work import Peer, Work

LOOPS = Path(__file__).parent / "loops"
OURS = Peer(POLYFED, LOOPS / "polyfed_loop.py", "fedavg", 1)
TORCH_LOOP = Peer(TORCH, PEERS / "torch_neural.py", "fedavg", 1)
FEDJAX_LOOP = Peer(FEDJAX, PEERS / "fedjax_loop.py", "fedavg", 1)
PFL_LOOP = Peer(PFL, LOOPS / "pfl_loop.py", "fedavg", 1)
FLOWER_LOOP = Peer(FLOWER, LOOPS / "flower_loop.py", "fedavg", 1)
ALL = (TORCH_LOOP, FEDJAX_LOOP, PFL_LOOP, FLOWER_LOOP)


def _stateful(method: str, gradients: int) -> tuple[Peer, ...]:
    """Who has a method with a state of every client: only the plain loop, written for it; and our FedAvg beside."""
    return (OURS, replace(TORCH_LOOP, method=method, gradients=gradients))


_MLP = Work("FedAvg, MLP 784-200-200-10, 100 clients x 20 steps", "mlp", 100, 20, 20, 10, ALL, rows=400)
WORKS = {
    "a": _MLP,
    "b": replace(_MLP, name="FedAvg, the MLP, 10 of 1,000 clients x 20 steps", clients=1000, rows=100, cohort=10),
    "c": Work(
        *("FedAvg, FEMNIST CNN, 10 clients x 20 steps", "femnist_cnn", 10, 20, 20, 62, ALL),
        rows=400,
        options={"dropout": 0},
    ),
    "d": Work("FedAvg, LSTM, 10 clients x 10 steps", "lstm", 10, 10, 10, 80, ALL),
    "e": Work(
        *("FedAvg, softmax regression, 1,000 clients x 10 steps", "linear", 1000, 10, 20, 10, ALL),
        rows=200,
        features=(60,),
    ),
    "f-apfl": replace(_MLP, name="APFL, work (a)", method="apfl", peers=_stateful("apfl", 2)),
    "f-scaffold": replace(_MLP, name="SCAFFOLD, work (a)", method="scaffold", peers=_stateful("scaffold", 1)),
}

SHARE = {"a": 0.65}
"""At least this share of the matrix-product rate."""
TIMES: dict[str, dict[Environment, float]] = {
    "a": {FEDJAX: 2.5, TORCH: 3.0, PFL: 3.0, FLOWER: 5.0},
    "b": {FEDJAX: 2.0, PFL: 3.0},
    "c": {TORCH: 1.0, FEDJAX: 1.5},
    "d": {TORCH: 1.0},
    "e": {FEDJAX: 20.0, PFL: 20.0, FLOWER: 100.0},
}
"""At least so many times as fast as the peer."""
OF_FEDAVG = {"f-apfl": 2.2, "f-scaffold": 1.25}
"""At most so many times the time of work (a)."""
ON_DEVICE = {
    ("a", 100): {"client_updates_per_second": 40_000},
    ("a", 1000): {"client_updates_per_second": 50_000},
    ("c", 100): {"tflops": 40},
}
"""On an H200, at least so much with so many clients."""


def products(work: Work) -> int:
    """The multiplications of the matrix products of one example's way forward through the model."""
    if work.model == "mlp":
        return 784 * 200 + 200 * 200 + 200 * work.classes
    if work.model == "linear":
        return work.features[0] * work.classes
    if work.model == "lstm":
        return 80 * 4 * 256 * (8 + 256 + 256 + 256) + 256 * work.classes
    return 26 * 26 * 9 * 32 + 24 * 24 * 9 * 32 * 64 + 9216 * 128 + 128 * work.classes


def operations(work: Work) -> int:
    """A round's: each product is one multiplication and one addition, forward and, twice as many, backward."""
    return 6 * (work.cohort or work.clients) * work.steps * work.batch * products(work) * work.gradients
