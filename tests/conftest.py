"""Shared fixtures: two XLA devices whatever the machine has, and small federations with unequal clients."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.programs import COMPILED, TRACED
from tests.compilation import QUICK

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background; commands of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update("jax_num_cpu_devices", 2)
gc.set_threshold(100_000, 50, 100)  # tracing makes objects by the million: looking for cycles took a tenth of the time
with pytest.MonkeyPatch.context() as patch:
    # XLA reads its flags once; the environment of what tests start stays as it is.
    patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {QUICK}")
    jax.devices()

SMALL: dict[str, Any] = {
    "local_steps": 3,
    "local_lr": 0.3,
    "batch": 4,
    "lr": 0.1,
    "p": 0.3,
    "plm_epochs": 2,
    "inner_steps": 2,
    "inner_lr": 0.05,
}
"""Hyper-parameters of little local work; a method takes those that it has."""
SMALLER: dict[str, dict[str, Any]] = {"scaffnew": {"lr": 0.08}, "scafflix": {"lr": 0.08}}
"""Their theorem allows no more: some clients' passes end with a batch of one row."""
MANY_MAPS = 12_000
"""Of the 65,530 memory maps that a process may have. A compiled program takes about twenty, and memory besides."""
KINDS = ("apfl", "diana", "fedavg", "fedbc", "scafflix", "scaffold")
"""One method of each shape: with a state of its own share, compressed, without a state, refining, absorbing, and with a
state at the server but nothing to prepare. `make test` runs the tests over all methods for these alone."""


def few(values: Iterable[Any], *quick: Any) -> list[Any]:
    """A parameter per value, or tuple of values; those that are not `quick` are left to `make test-all`."""
    return [
        value
        if value in quick
        else pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.full)
        for value in values
    ]


def each_method(names: Iterable[str], quick: Sequence[str] = KINDS) -> list[Any]:
    """A parameter per method; those that are not `quick` are left to `make test-all`."""
    return few(names, *quick)


def known(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a registered method has a field for."""
    cls: Any = pf.algorithms.REGISTRY[name]
    fields = {field.name for field in dataclasses.fields(cls)}
    return {key: value for key, value in options.items() if key in fields}


def small_options(name: str) -> dict[str, Any]:
    """The hyper-parameters of little local work that a registered method has."""
    return known(name, SMALL) | SMALLER.get(name, {})


def small_method(name: str, **options: Any) -> pf.algorithms.Algorithm:
    """A registered method with little local work."""
    return pf.algorithms.REGISTRY[name](**small_options(name) | options)


def unequal_clients(seed: int = 0, features: int = 4, classes: int = 3) -> dict[str, dict[str, tuple]]:
    """Six clients of 5 to 17 training rows, with a few validation and test rows, labels from their own linear rules."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(features, classes))

    def rows(count: int, rule: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(count, features))
        return x, np.argmax(x @ rule, axis=1)

    clients = {}
    for index, size in enumerate((5, 17, 8, 11, 6, 13)):
        rule = shared + 0.5 * rng.normal(size=(features, classes))
        clients[f"site-{index}"] = {"train": rows(size, rule), "validation": rows(3, rule), "test": rows(4, rule)}
    return clients


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps() -> Iterator[None]:
    """Forget compiled programs of earlier tests before a process has no maps left for the next."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def programs_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whoever replaces a part of the engine finds no program that was compiled with it, and leaves none behind."""
    patched = "monkeypatch" in request.fixturenames
    if patched:
        forget_programs()
    yield
    if patched:
        forget_programs()


def forget_programs() -> None:
    COMPILED.clear()
    TRACED.clear()


@pytest.fixture(scope="session")
def federation() -> pf.Federation:
    return pf.Federation.from_arrays(unequal_clients(), classes=3)


@pytest.fixture(scope="session")
def problem(federation: pf.Federation) -> pf.Problem:
    """Softmax regression with a ridge: small, convex, unequal clients."""
    return pf.Problem(federation, pf.models.linear(), "softmax", l2=0.01)
