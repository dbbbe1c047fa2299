"""Accuracy on fresh rows from a client's known law: a small client has a handful of test rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import global_model
from polyfed.data.seeds import stream
from polyfed.data.sources.synthetic import client_law
from polyfed.engine.sweep import Sweep
from polyfed.papers.shared.held_out import Options
from polyfed.problem.problem import Problem

FRESH = 2000
"""Rows for each client: the deviation of an accuracy is then at most 1.1 points."""


@lru_cache(maxsize=1200)
def fresh_rows(given: Options, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are in no split, from the law that `synthetic` gave to this client. About half a megabyte each."""
    options = {"alpha": 0.5, "beta": 0.5} | dict(given)  # the source's own defaults
    law = client_law(options["alpha"], options["beta"], 60, 10, seed, client)
    x, y = law.draw(FRESH, stream(seed, "fedbc", "fresh", client))
    return x.astype(np.float32), y


def fresh_accuracies(sweep: Sweep, given: Options, clients: Sequence[Sequence[int]]) -> np.ndarray:
    """Of every run's global model, on fresh rows of some of its clients: (runs, clients)."""
    rows = [[fresh_rows(given, s.seed, c) for c in mine] for s, mine in zip(sweep.simulations, clients, strict=True)]
    x, y = (np.stack([[pair[part] for pair in mine] for mine in rows]) for part in (0, 1))
    return np.asarray(_scores(sweep.first.problem)(global_model(sweep.servers), x, y))


@lru_cache(maxsize=1)
def _scores(problem: Problem) -> Callable[..., jax.Array]:
    """Accuracies of stacked models: those of the problem's architecture, whatever its data."""

    def score(params: object, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(jnp.argmax(problem.model.apply(params, x), axis=-1) == y)

    return jax.jit(jax.vmap(jax.vmap(score, in_axes=(None, 0, 0))))
