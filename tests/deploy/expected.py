"""What a deployed run must equal: the same run in the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import polyfed as pf
from polyfed.deploy.site.state_file import StateFile
from polyfed.engine import simulation
from polyfed.engine.checkpoint.tensors import load_tree
from polyfed.engine.participation import Sampling
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import algorithm_from
from tests.conftest import small_options

LAST = 10**9
"""No round is later."""


def small(name: str) -> dict[str, Any]:
    """A section [algorithm] with little local work."""
    return {"name": name, **small_options(name)}


def simulated(
    federation: pf.Federation,
    method: dict[str, Any],
    rounds: int = 5,
    class_weight: Any = None,
    **options: Any,
) -> Simulation:
    return simulated_on(federation, method, rounds, "softmax", class_weight, **options)


def simulated_on(
    federation: pf.Federation,
    method: dict[str, Any],
    rounds: int,
    loss: str,
    class_weight: Any = None,
    **options: Any,
) -> Simulation:
    problem = pf.Problem(federation, pf.models.linear(), loss, 0.01, class_weight)
    simulation = Simulation(problem, algorithm_from(method), **{"dtype": "float64", **options})
    simulation.prepare()
    simulation.advance(rounds)
    return simulation


@dataclass(frozen=True)
class Scripted(Sampling):
    """Cohorts from a script: for each round, whether each client is there."""

    rounds: tuple[tuple[bool, ...], ...] = ()

    def cohort(self, seed: Any, round: Any, slots: Any) -> Any:
        there = jnp.asarray(self.rounds)[jnp.clip(round, 0, len(self.rounds) - 1)]
        clients = jnp.argsort(~there, stable=True)[slots]
        return clients.astype(jnp.int32), there[clients] & (slots < self.population), jnp.sum(there)


@contextmanager
def in_cohorts(clients: Sequence[str], rounds: Sequence[Sequence[str]]) -> Iterator[None]:
    """Within it, simulations have exactly these clients in each round."""
    there = tuple(tuple(name in cohort for name in clients) for cohort in rounds)
    script = Scripted(len(clients), len(clients), 0.5, there)
    with mock.patch.object(simulation, "sampling", return_value=script):
        yield


def assert_equal(folder: Path, run: str, server: Any, expected: Simulation) -> None:
    """The server, and every site's state and personal model; each site has its folder in `folder`."""
    close(server, expected.server)
    for place, name in enumerate(expected.problem.federation.clients):
        model = expected.personal(place)
        close(load_tree(folder / name / "models" / run / "personal.safetensors", model), model)
        saved = StateFile(folder / name / "state", run, expected.start).read(LAST)
        assert saved is not None
        close(saved.state, jax.tree.map(lambda leaf, place=place: leaf[place], expected.client_state))


def close(actual: Any, expected: Any) -> None:
    left, right = jax.tree.leaves(actual), jax.tree.leaves(expected)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-10)
