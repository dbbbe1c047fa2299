"""One of two processes that simulate together: `one_of_two.py INDEX PORT FOLDER`; the clients are in FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import polyfed as pf
from polyfed.engine import hosts
from polyfed.engine.simulation import Simulation
from polyfed.engine.states import in_waves as streamed
from polyfed.engine.sweep import Sweep

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "fedavg": (
        pf.algorithms.FedAvg(local_steps=2, batch=4, weighting="uniform"),
        {"participation": 3, "privacy": pf.Privacy(clip=0.1, noise=0.5, delta=0.01, study=True)},
    ),
    "apfl": (
        pf.algorithms.APFL(local_steps=2, batch=4),
        {"participation": pf.Bernoulli(0.5), "rounds": 2, "eval_clients": 3},
    ),
    "scafflix": (
        pf.algorithms.Scafflix(alpha=0.5, p=0.3, batch=4, plm_epochs=2),
        {"participation": 3, "store": "host", "resume": True},
    ),
    "diana": (pf.algorithms.DIANA(alpha=0.5, lr=0.1, plm_epochs=2), {"store": "disk", "eval_clients": 3}),
}
"""Each is 4 rounds; two of APFL's are left to another process, and two of Scafflix's were done by one. DIANA's
clients are a population in the two processes: their rows are read for each cohort."""


def simulated(problem: pf.Problem, name: str, folder: Path, **changes: Any) -> pf.Result:
    method, options = CASES[name]
    options = {"rounds": 4, "eval_every": 4, "dtype": "float64", "checkpoint": folder / name} | options | changes
    options["resume"] = folder / name if options.get("resume") else None
    return pf.simulate(problem, method, **options)


def end(result: pf.Result) -> list[np.ndarray]:
    """What a run ends with, as numbers."""
    history = result.history.drop(columns="seconds").to_numpy(float)
    arrays = (result.simulation.server, result.client_state)
    return [*map(np.asarray, jax.tree.leaves(arrays)), history]


def deployed(result: pf.Result) -> list[np.ndarray]:
    """Every client's model."""
    blocks = [jax.tree.leaves(block) for block in result.simulation.personal_blocks()]
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def main(index: int, port: str, folder: Path) -> None:
    hosts.connect(f"127.0.0.1:{port}", 2, index)
    clients = json.loads((folder / "clients.json").read_text())
    arrays = {
        name: {split: (np.array(x), np.array(y)) for split, (x, y) in splits.items()}
        for name, splits in clients.items()
    }
    federation = pf.Federation.from_arrays(arrays, classes=3)
    problem, on_demand = (
        pf.Problem(clients, pf.models.linear(), "softmax", l2=0.01)
        for clients in (federation, pf.Population.of(federation))
    )
    streamed.WAVE_BYTES = 300  # two clients a device at a time
    told = []
    for name in CASES:
        place = folder if index == 0 else folder / "not-here"
        result = simulated(on_demand if name == "diana" else problem, name, place)
        found = end(result)
        if name != "apfl":  # on the devices, in memory, and in a file
            found += deployed(result)
            last, client = len(result.simulation.evaluated) - 1, int(result.simulation.evaluated[-1])
            for whole, one in zip(deployed(result), jax.tree.leaves(result.personal(client)), strict=True):
                np.testing.assert_allclose(whole[last], one, rtol=1e-12)
        if index == 0:
            np.savez(folder / f"{name}.npz", *found)
        told.append(f"{name} {len(result.simulation.layout.clients)} {type(result.simulation._residence).__name__}")
    for refused in (
        lambda: pf.simulate(problem, pf.algorithms.FedAvg(), rounds=1, seed=index),
        lambda: Sweep([Simulation(problem, pf.algorithms.FedAvg())]),
    ):
        try:
            refused()
        except pf.PolyfedError as error:
            told.append(str(error))
    (folder / f"told-{index}").write_text("\n".join(told))
    hosts.meet()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
