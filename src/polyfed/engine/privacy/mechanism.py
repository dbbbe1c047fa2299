"""Differential privacy of clients: every upload is clipped, and the sum gets Gaussian noise; around any algorithm.

What the server reads in a round is sum_i clip(u_i) + N(0, (noise * clip)^2), over a number of uploads that no client
can change. What it makes of that, and so all that it ever sends or publishes, is covered.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from polyfed.algorithms.contract import Algorithm, Total, Upload
from polyfed.algorithms.shared.bonds import BondedMethod
from polyfed.algorithms.shared.local_work import Weighted
from polyfed.compress import Sealed
from polyfed.core import randomness, trees
from polyfed.core.errors import PolyfedError, settings_with_own_names, suggestion
from polyfed.core.files import JsonObject
from polyfed.core.randomness import Purpose
from polyfed.core.trees import Scalar, Tree
from polyfed.engine import hosts
from polyfed.problem.problem import NotMeasured

if TYPE_CHECKING:
    from polyfed.problem.problem import Problem


class Moment(NamedTuple):
    """What a round's noise is drawn by: the run's seed and the round's number, or secret words and the number."""

    seed: jax.Array
    number: Any
    secret: jax.Array | np.ndarray | None


@settings_with_own_names
@dataclass(frozen=True)
class Privacy:
    """How clients are protected; the section [privacy] of a config."""

    clip: float
    """C, the largest norm that a client's upload may have, all its numbers as one vector; a longer one is scaled"""
    noise: float
    """z, the standard deviation of the noise on the sum, in multiples of clip"""
    delta: float = 1e-5
    """delta at which the privacy spent, epsilon, is told; well below 1 / clients"""
    seed: int | None = None
    """of the noise, for study: whoever knows it can take the noise off; by default the system's random numbers"""
    study: bool = False
    """for study, in a simulation: noise by the run's seed, which is in its folder, so that it can be repeated"""

    def check(self) -> None:
        """Refuse numbers that make no sense, with a sentence that names them."""
        for name, low in (("clip", 0.0), ("noise", -1.0), ("delta", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > low or value != value:
                wanted = "a number above 0" if low == 0 else "a number, at least 0"
                raise PolyfedError(f"privacy.{name} must be {wanted}, found {value!r}")
        if not 0 <= self.noise < float("inf"):
            raise PolyfedError(f"privacy.noise must be a number, at least 0, found {self.noise!r}")
        if self.delta >= 1:
            raise PolyfedError(f"privacy.delta must be below 1, found {self.delta!r}")
        if self.noise > 0 and self.clip == float("inf"):
            raise PolyfedError("privacy.clip must be finite where there is noise: it is what the noise is measured by")
        seed = self.seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32):
            raise PolyfedError(f"privacy.seed must be a whole number from 0 to 2^32 - 1, found {seed!r}")

        if not isinstance(self.study, bool):
            raise PolyfedError(f"privacy.study must be true or false, found {self.study!r}")

    @property
    def secret(self) -> bool:
        """Whether nobody can draw the noise again."""
        return self.seed is None and not self.study

    @property
    def noise_from(self) -> str:
        """Where the noise of a simulation comes from, in words."""
        if self.noise == 0:
            return "nowhere: there is none"
        if self.secret:
            return "the operating system"
        return "the run's seed, for study" if self.seed is None else "privacy.seed, for study"

    def fresh(self) -> np.ndarray | None:
        """64 bits of the operating system for the noise of the next rounds, kept nowhere; None where it is for study.

        Several processes use those of the first.
        """
        if not self.secret or self.noise == 0:
            return None
        return hosts.sent(np.frombuffer(os.urandom(8), np.uint32))

    def key(self, moment: Moment) -> jax.Array:
        """The key of a round's noise."""
        seed, number, secret = moment
        if secret is not None:
            return jax.random.fold_in(randomness.secret_key(secret), number)
        return randomness.purpose_key(seed if self.seed is None else self.seed, Purpose.NOISE, number)

    def clipped(self, method: Algorithm, upload: Upload) -> Upload:
        """The upload, at most `clip` long, with the weight one.

        All parts of it are scaled by the same factor, so that compressed ones still travel as their code.
        """
        _check_upload(method, upload)
        if not jax.tree.leaves(upload.values) or self.clip == float("inf"):
            return dataclasses.replace(upload, weight=1.0)
        length = jnp.sqrt(trees.squared_norm(upload.values))
        factor = jnp.minimum(1.0, self.clip / jnp.where(length > 0, length, 1.0))
        factor = jnp.where(upload.silent, 0.0, factor)
        values, sealed = trees.scale(factor, upload.values), _scaled(upload.sealed, factor)
        return dataclasses.replace(upload, values=values, weight=1.0, sealed=sealed)

    def released(self, total: Total, expected: float, key: jax.Array) -> Total:
        """What the server's step may read of the sum: with noise, and over the `expected` number of uploads.

        A missing client counts as zero, so that one client more or less moves the sum by `clip` at most.
        """
        values = total.values
        if self.noise > 0:
            values = trees.add(values, drawn(values, self.noise * self.clip, key))
        real = total.weight.dtype
        count = jax.lax.optimization_barrier(jnp.asarray(expected, real))  # rounds as a plain run does
        return Total(values, count, count, total.population.astype(real))

    def exceeds(self, values: Tree) -> bool:
        """Whether an upload is longer than it may be, beyond rounding."""
        if not jax.tree.leaves(values):
            return False
        length = np.sqrt(sum(float(np.sum(np.square(leaf, dtype=np.float64))) for leaf in jax.tree.leaves(values)))
        return bool(length > self.clip * (1 + 1e-5))

    def secret_noise(self, values: Tree) -> Tree:
        """Noise like `values` from the system's random numbers: nobody can draw it again."""

        def of_leaf(leaf: jax.Array) -> np.ndarray:
            whole = np.frombuffer(os.urandom(8 * np.size(leaf)), np.uint64) >> np.uint64(11)
            uniform = (whole.astype(np.float64) + 0.5) / 2.0**53
            return (self.noise * self.clip * ndtri(uniform)).reshape(np.shape(leaf)).astype(leaf.dtype)

        return jax.tree.map(of_leaf, values)


def privacy_settings(section: JsonObject | None, where: str) -> Privacy | None:
    """Check the section [privacy]; every mistake is named."""
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{where}: privacy must be a section, [privacy]")
    known = {field.name: field for field in dataclasses.fields(Privacy)}
    for key in section:
        if key not in known:
            raise PolyfedError(f"{where}: unknown key privacy.{key}{suggestion(key, known)}")
    for key in ("clip", "noise"):
        if key not in section:
            raise PolyfedError(f"{where}: privacy.{key} is missing")
    privacy = Privacy(**section)
    try:
        privacy.check()
    except PolyfedError as error:
        raise PolyfedError(f"{where}: {error}") from None
    return privacy


def resolved(method: Algorithm, problem: Problem) -> Algorithm:
    """The method resolved without a look at the clients' rows: what is measured on them would be released, too."""
    if method.resolve is None:
        return method
    try:
        return method.resolve(problem.unmeasured())
    except NotMeasured:
        raise
    except PolyfedError as error:
        raise PolyfedError(f"{error}; with privacy nothing is measured on the clients' rows") from None


def drawn(like: Tree, deviation: Scalar, key: jax.Array) -> Tree:
    """Independent Gaussian numbers with this standard deviation, in the shapes of a tree."""
    leaves, structure = jax.tree.flatten(like)
    noise = [
        deviation * jax.random.normal(jax.random.fold_in(key, place), leaf.shape, leaf.dtype)
        for place, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, noise)


def _check_upload(method: Algorithm, upload: Upload) -> None:
    """Refuse what cannot be bounded: weights that follow from a client's data, and numbers that are not real."""
    if not isinstance(upload.weight, int | float):
        if isinstance(method, Weighted | BondedMethod):
            raise PolyfedError(
                f"{method.name}: weighting = '{method.weighting}' weighs clients by what privacy does not cover; use "
                "weighting = 'uniform'"
            )
        raise PolyfedError(f"{method.name}: its clients' weights differ, and privacy needs the same weight for all")
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(upload.values)):
        raise PolyfedError(f"{method.name}: uploads whole numbers, which privacy cannot clip")


def _scaled(sealed: Any, factor: jax.Array) -> Any:
    """The same codes for values that are scaled."""

    def of_part(part: Sealed) -> Sealed:
        return dataclasses.replace(part, factor=part.factor * factor)

    return jax.tree.map(of_part, sealed, is_leaf=lambda node: isinstance(node, Sealed))
