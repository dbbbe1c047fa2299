"""How long it takes until work begins: the import, the compilation of every method, and a second process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax

from polyfed.algorithms import REGISTRY
from polyfed.bench.compilations import compilations
from polyfed.bench.engine import random_problem
from polyfed.engine.simulation import Simulation

IMPORT = "import time; begun = time.perf_counter(); import polyfed; print(time.perf_counter() - begun)"
FIRST_ROUND = """
import polyfed as pf
from polyfed.bench.engine import random_problem
pf.simulate(random_problem(100, 40), pf.algorithms.FedAvg(local_steps=20, batch=20), rounds=1)
"""
WORK: dict[str, Any] = {
    "lr": 0.05,
    "local_steps": 20,
    "batch": 20,
    "p": 0.1,
    "plm_epochs": 1,
    "local_lr": 0.05,
    "inner_steps": 2,
    "inner_lr": 0.05,
}
"""The values of these fields, for methods that have them."""


def startup(repeat: int = 5) -> dict[str, Any]:
    """Seconds of the import, of a first and a second process until their first round ends, and of compilation.

    The second process finds the compiled programs of the first in the cache on disk.
    """
    imports = [float(_python(IMPORT)) for _ in range(repeat)]
    with tempfile.TemporaryDirectory() as folder:
        first, *later = [_seconds(FIRST_ROUND, folder) for _ in range(1 + repeat)]
    return {
        "import_seconds": min(imports),
        "first_process_seconds": first,
        "second_process_seconds": min(later),
        "methods": json.loads(_python("import startup; startup.print_compile_times()")),
    }


def _python(code: str, **variables: str) -> str:
    """What this code prints, in a process of its own, beside this file."""
    place = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment = {**usual, "PYTHONPATH": place.rstrip(os.pathsep), **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def _seconds(code: str, cache: str) -> float:
    begun = time.perf_counter()
    _python(code, POLYFED_CACHE=cache)
    return time.perf_counter() - begun


def print_compile_times() -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    print(json.dumps([compile_time(name) for name in sorted(REGISTRY)]))


def compile_time(name: str) -> dict[str, Any]:
    """A method on the MLP: the seconds that its programs take to compile, and what is compiled in later rounds."""
    names = {field.name for field in dataclasses.fields(REGISTRY[name])}  # pyright: ignore[reportArgumentType]
    method = REGISTRY[name](**{key: value for key, value in WORK.items() if key in names})
    simulation = Simulation(random_problem(10, 40), method, participation=5)
    simulation.prepare()
    simulation.advance(1)
    with compilations() as later:
        simulation.advance(1)
        simulation.advance(3)
    return {"method": name, "compile_seconds": simulation.compile_seconds, "compiled_later": len(later)}
