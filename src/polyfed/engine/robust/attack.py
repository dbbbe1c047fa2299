"""Attackers among the clients of a simulation: the section [attack] of a config. A deployed run has none."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Upload
from polyfed.core import trees
from polyfed.core.errors import PolyfedError, settings_with_own_names, suggestion
from polyfed.core.files import JsonObject
from polyfed.core.trees import Tree
from polyfed.engine.privacy.mechanism import drawn
from polyfed.engine.robust.settings import named, read_section

Kind = Literal["sign_flip", "scale", "noise", "label_flip", "little"]
KINDS = get_args(Kind)
STRENGTH = {"sign_flip": 1.0, "scale": 10.0, "noise": 10.0}


@settings_with_own_names
@dataclass(frozen=True)
class Attack:
    """What some clients of a simulation do instead of their work; for study."""

    kind: Kind
    """"sign_flip", "scale", "noise", "label_flip", or "little" (a little is enough)"""
    share: float | None = None
    """the share of the clients that attack, drawn by the run's seed"""
    clients: tuple[str, ...] | None = None
    """their names, instead of a share"""
    strength: float | None = None
    """how many times the own upload is sent (sign_flip 1, scale 10) or replaced by noise (10); for little, deviations
    from the mean, by default as many as the paper's rule gives"""

    def check(self) -> None:
        """Refuse values that make no sense, with a sentence that names them."""
        if self.kind not in KINDS:
            raise PolyfedError(f"unknown attack.kind '{self.kind}'{suggestion(str(self.kind), KINDS)}")
        if (self.share is None) == (self.clients is None):
            raise PolyfedError("attack needs either attack.share or attack.clients")
        if self.share is not None and not (
            isinstance(self.share, int | float) and not isinstance(self.share, bool) and 0 <= self.share < 1
        ):
            raise PolyfedError(f"attack.share must be at least 0 and below 1, found {self.share!r}")
        if self.clients is not None and not (
            isinstance(self.clients, tuple | list) and all(isinstance(name, str) for name in self.clients)
        ):
            raise PolyfedError(f"attack.clients must be a list of clients' names, found {self.clients!r}")
        number = self.strength
        if number is not None and (
            self.kind == "label_flip" or isinstance(number, bool) or not isinstance(number, int | float) or number <= 0
        ):
            wanted = "is not for label_flip" if self.kind == "label_flip" else "must be a number above 0"
            raise PolyfedError(f"attack.strength {wanted}, found {number!r}")

    def attackers(self, names: Sequence[str], seed: int) -> tuple[int, ...]:
        """The places of the clients that attack: a share of them is drawn by seed and name, whatever their order."""
        if self.clients is not None:
            for name in self.clients:
                if name not in names:
                    raise PolyfedError(f"attack.clients: there is no client '{name}'{suggestion(name, names)}")
            return tuple(sorted({list(names).index(name) for name in self.clients}))
        assert self.share is not None

        def lot(place: int) -> bytes:
            return hashlib.blake2b(f"attack {seed} {names[place]}".encode(), digest_size=16).digest()

        count = int(self.share * len(names) + 1e-4)
        return tuple(sorted(sorted(range(len(names)), key=lot)[:count]))


@dataclass(frozen=True)
class Attackers:
    """An attack and who takes part in it, by their places among so many clients."""

    attack: Attack
    places: tuple[int, ...]
    population: int

    def among(self, client: jax.Array) -> jax.Array:
        """Whether a client is one of them."""
        mask = np.zeros(self.population, bool)
        mask[list(self.places)] = True
        return jnp.asarray(mask)[client]

    def sent(self, upload: Upload, client: jax.Array, key: jax.Array) -> Upload:
        """The upload of a client, or what it sends instead, as far as that depends on the client alone."""
        kind = self.attack.kind
        if kind not in STRENGTH or not jax.tree.leaves(upload.values):
            return upload
        strength = STRENGTH[kind] if self.attack.strength is None else self.attack.strength
        if kind == "noise":
            length = jnp.sqrt(trees.squared_norm(upload.values) / trees.count(upload.values))
            false = drawn(upload.values, strength * length, key)
        else:
            false = trees.scale(-strength if kind == "sign_flip" else strength, upload.values)
        return dataclasses.replace(upload, values=trees.where(self.among(client), false, upload.values))

    def agreed(self, uploads: Tree, counted: jax.Array, attacks: jax.Array) -> Tree:
        """All uploads of a round after what attackers do together, who know everybody's.

        "A little is enough" (Baruch, Baruch, Goldberg 2019, Algorithm 3): mu_j + z sigma_j in every coordinate, with
        the largest z for which enough honest clients are further out to make a majority with the attackers.
        """
        if self.attack.kind != "little":
            return uploads
        if self.attack.strength is None:
            n, m = jnp.sum(counted) * 1.0, jnp.sum(counted & attacks) * 1.0
            supporters = jnp.floor(n / 2 + 1) - m
            z = jax.scipy.special.ndtri(jnp.clip((n - m - supporters) / jnp.maximum(n - m, 1), 0.5, 0.999))
        else:
            z = jnp.asarray(self.attack.strength, jnp.result_type(float))

        def of_leaf(leaf: jax.Array) -> jax.Array:
            shape = (len(leaf),) + (1,) * (leaf.ndim - 1)
            here = counted.reshape(shape)
            count = jnp.maximum(jnp.sum(counted), 1).astype(leaf.dtype)
            mu = jnp.sum(jnp.where(here, leaf, 0), axis=0) / count
            sigma = jnp.sqrt(jnp.sum(jnp.where(here, jnp.square(leaf - mu), 0), axis=0) / count)
            return jnp.where(attacks.reshape(shape) & here, mu + z.astype(leaf.dtype) * sigma, leaf)

        return jax.tree.map(of_leaf, uploads)


def flipped(labels: np.ndarray, classes: int | None) -> np.ndarray:
    """Labels as an attacker's rows have them: class k is the k-th from the end, and -1 is +1."""
    if classes is not None:
        return (classes - 1 - labels).astype(labels.dtype)
    if set(np.unique(labels).tolist()) <= {-1.0, 1.0}:
        return -labels
    raise PolyfedError("attack.kind = 'label_flip' needs classes or labels of -1 and +1, and these are real numbers")


def attack_settings(given: JsonObject | Attack | None, where: str = "") -> Attack | None:
    """Check the section [attack], or the argument `attack`."""
    settings = given if given is None or isinstance(given, Attack) else read_section(given, Attack, "attack", where)
    if settings is not None:
        named(settings.check, where)
    return settings
