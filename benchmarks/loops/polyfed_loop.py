"""Rounds of polyfed in a process of its own: an answer per line of input.

`round` answers with its seconds, `loss` with the mean loss of what the clients deploy, `product` with the rate of a
matrix product in GFLOP/s.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.engine.simulation import Simulation

LR, SIDE = 0.1, 2048


def main() -> None:
    options = json.loads(sys.argv[2])
    with np.load(sys.argv[1]) as given:
        arrays = {name: given[name] for name in given.files}
    x, y, cohorts = arrays.pop("x"), arrays.pop("y"), options.get("cohorts")
    kind, classes = options["model"], options["classes"]
    model = pf.models.MODELS[kind](**({"dropout": options["dropout"]} if kind == "femnist_cnn" else {}))
    methods = {"fedavg": pf.algorithms.FedAvg, "apfl": pf.algorithms.APFL, "scaffold": pf.algorithms.Scaffold}

    # user code
    federation = pf.Federation.from_arrays(list(zip(x, y, strict=True)), classes=classes, validation=0, test=0)
    problem = pf.Problem(federation, model, "softmax")
    method = methods[options["method"]](lr=LR, local_steps=options["steps"], batch=options["batch"])
    start = jax.tree_util.tree_map_with_path(lambda path, _: arrays[named(path)], problem.init())
    simulation = Simulation(problem, method, participation=len(cohorts[0]) if cohorts else 1.0, init=start)
    simulation.prepare()
    # end of user code
    multiply, square = jax.jit(lambda a: a @ a), jnp.ones((SIDE, SIDE))
    print("ready", flush=True)
    for line in sys.stdin:
        question = line.strip()
        if question == "loss":
            print(float(np.mean(simulation.measure()["personal"]["train"]["loss"])), flush=True)
        elif question == "product":
            multiply(square).block_until_ready()
            begun = time.perf_counter()
            multiply(square).block_until_ready()
            print(2 * SIDE**3 / (time.perf_counter() - begun) / 1e9, flush=True)
        else:
            before, used = simulation.seconds, time.process_time()
            # user code
            simulation.advance(1)
            # end of user code
            print(simulation.seconds - before, time.process_time() - used, flush=True)


def named(path: tuple) -> str:
    """The name of an array in the file."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


main()
