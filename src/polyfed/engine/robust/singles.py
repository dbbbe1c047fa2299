"""A round whose server sees single uploads: they are kept, gathered from all devices, and one is made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from polyfed.algorithms.contract import Algorithm, Server, Total, Upload
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.core.trees import Tree
from polyfed.engine.devices.layout import AXIS, Layout
from polyfed.engine.participation import Sampling
from polyfed.engine.placement import relabelled
from polyfed.engine.robust.attack import Attack, Attackers, flipped
from polyfed.engine.robust.settings import WINDOW, Aggregate, window
from polyfed.engine.round.chunks import Chunk, keep, select
from polyfed.engine.round.records import Contribution, Data

if TYPE_CHECKING:
    from polyfed.engine.privacy.mechanism import Privacy
    from polyfed.problem.problem import Problem


class Kept(NamedTuple):
    """The uploads of a device's clients, a row for each slot."""

    values: Tree
    weight: jax.Array
    counted: jax.Array
    attacks: jax.Array


class One:
    """A `Total` whose mean is what a rule made of single uploads. It has no sum of them."""

    share = Total.share

    def __init__(self, mean: Tree, weight: jax.Array, count: jax.Array, population: jax.Array) -> None:
        self.mean, self.weight, self.count, self.population = mean, weight, count, population


@dataclass(frozen=True)
class Singles:
    """How single uploads are treated."""

    aggregate: Aggregate
    attackers: Attackers | None = None

    def none(self, values: Tree, slots: int, real: DTypeLike) -> Kept:
        """No uploads yet, in the shape of a client's."""
        blank = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), values)
        no = jnp.zeros(slots, bool)
        return Kept(blank, jnp.zeros(slots, real), no, no)

    def plus(
        self, kept: Kept, chunk: Chunk, sent: Contribution, fine: jax.Array, mine: jax.Array, places: jax.Array
    ) -> Kept:
        """With those of a chunk; `places`: its clients, `fine`: whose uploads count, `mine`: who are not there yet."""
        attacks = jnp.zeros(len(mine), bool) if self.attackers is None else self.attackers.among(places)
        new = Kept(jax.tree.map(lambda leaf: keep(fine, leaf), sent.values), keep(fine, sent.weight), fine, attacks)
        return chunk.put(kept, jax.tree.map(lambda n, o: select(mine, n, o), new, chunk.of(kept)))

    def sent(self, upload: Upload, client: jax.Array, key: jax.Array) -> Upload:
        """What a client sends."""
        return upload if self.attackers is None else self.attackers.sent(upload, client, key)

    def total(self, kept: Kept, population: jax.Array, past: jax.Array | None) -> tuple[Any, jax.Array | None]:
        """The one upload of all devices' clients, and the norms of past rounds with this one's."""
        values, weight, counted, attacks = lax.all_gather(kept, AXIS, tiled=True)
        if self.attackers is not None:
            values = self.attackers.agreed(values, counted, attacks)
        known = jnp.full(WINDOW, jnp.nan, weight.dtype) if past is None else past
        one = self.aggregate.pooled(values, weight, counted, known)
        if past is not None:
            past = jnp.where(one.uploads > 0, jnp.append(past[1:], one.norm), past)
        return One(one.values, one.weight, one.uploads, population), past

    def facts(self, names: Sequence[str]) -> JsonObject:
        """What a summary says of it."""
        told: JsonObject = {"aggregate": dataclasses.asdict(self.aggregate)}
        if self.attackers is not None:
            attack, places = self.attackers.attack, self.attackers.places
            who = [names[place] for place in places]
            told["attack"] = {"kind": attack.kind, "strength": attack.strength, "clients": who}
        return told

    def past(self, norms: Sequence[float]) -> np.ndarray | None:
        """The norms of past rounds as a round reads them; None where it needs none."""
        return np.asarray(window(norms, jnp.result_type(float))) if self.aggregate.bound == "median" else None


def singles(
    aggregate: Aggregate | None,
    attack: Attack | None,
    problem: Problem,
    sampling: Sampling,
    privacy: Privacy | None,
    seed: int,
) -> Singles | None:
    """How a run treats single uploads, if it does; what does not go together is refused."""
    if aggregate is None and attack is None:
        return None
    if privacy is not None:
        what = "aggregate" if attack is None else "attack"
        reason = {
            "aggregate": "its noise protects a sum, and a rule for single uploads makes none",
            "attack": "its clips are what honest clients do",
        }[what]
        raise PolyfedError(f"{what} does not go with privacy: {reason}")
    if aggregate is not None:
        aggregate.check()
        aggregate.check_cohort(round(sampling.expected))
    if attack is None:
        return Singles(aggregate or Aggregate("mean", weighted=True))
    attack.check()
    places = attack.attackers(problem.federation.clients, seed)
    return Singles(aggregate or Aggregate("mean", weighted=True), Attackers(attack, places, len(problem)))


def check_store(singles: Singles | None, store: str) -> None:
    if singles is not None and store != "device":
        raise PolyfedError(
            f"aggregate and attack need the clients' states and rows on the devices: store = 'device', found '{store}'"
        )


def check_method(method: Algorithm, server: Server, upload: Upload) -> None:
    """Refuse a method whose uploads cannot be made one in another way than by a sum; called where it is traced."""
    if not jax.tree.leaves(upload.values):
        return
    if upload.sealed is not None:
        raise PolyfedError(
            f"{method.name}: its uploads are compressed, and no rule for single uploads can tell what was left out "
            "from what is zero"
        )
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(upload.values)):
        raise PolyfedError(f"{method.name}: uploads whole numbers, which no rule for single uploads takes")
    one: Any = One(upload.values, jnp.ones((), jnp.result_type(float)), jnp.int32(1), jnp.int32(1))
    try:
        method.update(server, one)
    except AttributeError as error:
        if error.name != "values":
            raise
        raise PolyfedError(
            f"{method.name}: its server reads the sum of the uploads and not their mean, so no rule for single uploads "
            "can take its place"
        ) from None


def poisoned(problem: Problem, layout: Layout, data: Data, singles: Singles | None) -> Data:
    """The rows that clients train on: attackers' labels are flipped where that is the attack."""
    if singles is None or singles.attackers is None or singles.attackers.attack.kind != "label_flip":
        return data
    offsets, targets = problem.federation.train.offsets, np.array(problem.examples("train")[1])
    wrong = flipped(targets, problem.federation.classes)
    for place in singles.attackers.places:
        rows = slice(offsets[place], offsets[place + 1])
        targets[rows] = wrong[rows]
    return relabelled(problem, layout, data, targets)
