"""Metrics of every client, absent ones included: of the models they deploy, share, or tune, on each split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.algorithms.contract import Algorithm, Server, State, global_model
from polyfed.core import checks, randomness
from polyfed.core.errors import PolyfedError, settings_with_own_names
from polyfed.core.randomness import Purpose
from polyfed.core.trees import Scalar, Tree, descend
from polyfed.engine.round.chunks import Chunk, over_clients
from polyfed.engine.round.records import Data, Shard
from polyfed.engine.round.round import Round
from polyfed.problem.objective import Batch, Batching

EVAL_BLOCK = 256
"""The most rows that a client's evaluation takes at a time."""


SIDE_BY_SIDE = 16
"""The clients whose rows stand in one line where they share a model."""


def eval_block(longest: int) -> int:
    """Of so many rows, how many at a time: at most EVAL_BLOCK, and as few as possible more than there are."""
    return -(-longest // -(-longest // EVAL_BLOCK))


@settings_with_own_names
@dataclass(frozen=True)
class FineTune:
    """Local fine-tuning of the global model, on the client's training data: `steps` of SGD with stepsize `lr`."""

    steps: int = 10
    lr: float = 0.05
    batch: int | Literal["full"] = 20

    def __post_init__(self) -> None:
        checks.whole("FineTune: steps", self.steps)
        if isinstance(self.lr, bool) or not isinstance(self.lr, Real) or not 0 <= float(self.lr) < inf:
            raise PolyfedError(f"FineTune: lr must be a number, at least 0, found {self.lr!r}")
        checks.rows("FineTune: batch", self.batch)


class Metrics(NamedTuple):
    """Per client: the mean loss without the ridge, the loss's metric, and the ridge of the measured model."""

    loss: jax.Array
    metric: jax.Array
    ridge: jax.Array
    weighted: jax.Array | None = None
    """The mean loss with class weights, where the problem has any: with the ridge, the objective."""


@dataclass(frozen=True)
class Measure:
    """Measures models on splits, inside the devices' `shard_map`; `longest` bounds the rows at a time.

    `in_line`: clients that share a model are measured row after row, not side by side, so that none waits for another.

    `on_test`: what is adapted or fine-tuned is so on test rows. That leaks their labels; some papers measure so.
    """

    round: Round
    chunk: int
    longest: dict[str, int]
    finetune: FineTune | None = None
    on_test: bool = False
    in_line: bool = False

    def __call__(
        self,
        method: Algorithm,
        server: Server,
        clients: jax.Array,
        states: State,
        data: Data,
        splits: dict[str, Shard],
        rate: jax.Array | None = None,
    ) -> dict[str, dict[str, Metrics]]:
        """{model: {split: metrics of this device's clients}}; `rate` is the stepsize of fine-tuning."""

        round, rows = self.adapting(data, splits)
        shared = global_model(server) if self.in_line and self.finetune is None else None

        def of_client(client: jax.Array, state: State) -> dict[str, dict[str, Metrics]]:
            return {
                name: {split: self.of(params, split, shard, client) for split, shard in splits.items()}
                for name, params in self.models(round, method, server, state, client, rows, rate).items()
                if name != "global" or shared is None
            }

        work = sum((shard.sizes for shard in splits.values()), jnp.zeros((), jnp.int32))
        measured = over_clients(of_client, clients, self.chunk, states, work)
        if shared is None:
            return measured
        return measured | {"global": {name: self.of_all(shared, name, splits[name], clients) for name in splits}}

    def adapting(self, data: Data, splits: dict[str, Shard]) -> tuple[Round, Data]:
        """The round and the data that models are adapted and fine-tuned with."""
        if not self.on_test:
            return self.round, data
        longest = self.round.longest._replace(train=self.round.longest.test)
        rows = data._replace(train=splits["test"], blocks=None, validation=None)
        return replace(self.round, longest=longest, shortest=0), rows

    def models(
        self,
        round: Round,
        method: Algorithm,
        server: Server,
        state: State,
        client: jax.Array,
        data: Data,
        rate: jax.Array | None,
    ) -> dict[str, Tree]:
        """The models of a client that are measured, by name; `round` and `data` are those of `adapting`."""
        shared = global_model(server)
        if self.finetune is not None:
            assert rate is not None
            return {"finetuned": tuned(round, self.finetune, shared, client, data, rate)}
        if deploys_shared(method, server, state):
            return {"global": shared}
        personal = {"personal": deployed(round, method, server, state, client, data)}
        return personal if shared is None else personal | {"global": shared}

    def of(self, params: Tree, split: str, shard: Shard, client: jax.Array) -> Metrics:
        """A model's metrics on a client's rows, summed block by block; NaN for a client without rows."""
        start, size = shard.starts[client], shard.sizes[client]
        block = eval_block(self.longest[split])
        real = jnp.result_type(float)

        def body(index: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
            positions = index * block + jnp.arange(block)
            inside = positions < size
            batch = Batch(start + jnp.where(inside, positions, size - 1), inside.astype(real))
            values = self._of_rows(params, shard, batch)
            return [
                total + jnp.sum(jnp.where(inside, value, 0), dtype=real)
                for total, value in zip(sums, values, strict=True)
            ]

        zeros = [jnp.zeros((), real)] * self._kinds
        loss, metric, *weighted = lax.fori_loop(0, (size + block - 1) // block, body, zeros)
        ridge = jnp.broadcast_to(self.round.task.ridge(params), ())
        return Metrics(loss / size, metric / size, ridge, *(total / size for total in weighted))

    def of_all(self, params: Tree, split: str, shard: Shard, clients: jax.Array) -> Metrics:
        """A shared model's metrics on each client's rows: those of some clients stand in one line, cut into blocks."""
        count = min(SIDE_BY_SIDE, len(clients))
        block = eval_block(count * self.longest[split])
        real = jnp.result_type(float)

        def of_clients(clients: jax.Array) -> list[jax.Array]:
            starts, sizes = shard.starts[clients], shard.sizes[clients]
            ends = jnp.cumsum(sizes)

            def body(index: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
                positions = jnp.minimum(index * block + jnp.arange(block), ends[-1] - 1)
                owner = jnp.searchsorted(ends, positions, side="right", method="compare_all")
                rows = (starts + sizes - ends)[owner] + positions
                fresh = index * block + jnp.arange(block) < ends[-1]
                mine = (owner == jnp.arange(count)[:, None]) & fresh
                values = self._of_rows(params, shard, Batch(rows, fresh.astype(real)))
                return [
                    t + jnp.sum(jnp.where(mine, value, 0), axis=1, dtype=real)
                    for t, value in zip(sums, values, strict=True)
                ]

            return lax.fori_loop(0, (ends[-1] + block - 1) // block, body, [jnp.zeros(count, real)] * self._kinds)

        def chunk(index: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
            piece = Chunk(index, len(clients), count)
            return piece.put(sums, of_clients(piece.of(clients)))

        blank = [jnp.zeros(len(clients), real)] * self._kinds
        sizes = shard.sizes[clients]
        loss, metric, *weighted = lax.fori_loop(0, -(-len(clients) // count), chunk, blank)
        ridge = jnp.broadcast_to(self.round.task.ridge(params), sizes.shape)
        return Metrics(loss / sizes, metric / sizes, ridge, *(total / sizes for total in weighted))

    @property
    def _kinds(self) -> int:
        """How many values a row has."""
        return 2 if self.round.task.class_weight is None else 3

    def _of_rows(self, params: Tree, shard: Shard, batch: Batch) -> list[jax.Array]:
        """The loss and the metric of each row and, where classes have weights, the weighted loss."""
        task = self.round.task
        outputs, targets = task.predict(params, shard.examples, batch)
        values = [task.loss.value(outputs, targets), task.loss.metric(outputs, targets)]
        return values if task.class_weight is None else [*values, task.row_loss(outputs, targets)]


def tuned(round: Round, tune: FineTune, params: Tree, client: jax.Array, data: Data, rate: Scalar) -> Tree:
    """The model after a client's fine-tuning on its training rows."""
    f = round.exact.objective(data, client, 0)
    key = randomness.client_key(randomness.purpose_key(data.seed, Purpose.FINETUNE), data.client_ids[client])

    def step(x: Tree, batch: Batch | None) -> Tree:
        return descend(x, rate, f.grad(x, batch))

    return f.train(step, params, key, Batching(tune.batch, tune.steps))[0]


def deployed(round: Round, method: Algorithm, server: Server, state: State, client: jax.Array, data: Data) -> Tree:
    """The model that a client deploys, refined on its training rows where the method says so."""
    return refined(round, method, method.personal(server, state), client, data)


def refined(round: Round, method: Algorithm, model: Tree, client: jax.Array, data: Data) -> Tree:
    """A client's model after the last steps that it takes on its training rows before it deploys it."""
    if method.refine is None:
        return model
    key = randomness.client_key(randomness.purpose_key(data.seed, Purpose.FINETUNE), data.client_ids[client])
    return method.refine(model, round.exact.objective(data, client, 0), key)


def deploys_shared(method: Algorithm, server: Server, state: State) -> bool:
    """Whether the model that a client deploys is the global one itself: the same arrays, not only the same values."""
    return method.refine is None and deploys_arrays_of(method, server, state, global_model(server))


def deploys_arrays_of(method: Algorithm, server: Server, state: State, source: Tree | None) -> bool:
    """Whether all arrays of the model that a client deploys, before it is refined, are among those of `source`."""
    known = {id(leaf) for leaf in jax.tree.leaves(source)}
    return bool(known) and all(id(leaf) in known for leaf in jax.tree.leaves(method.personal(server, state)))


def same_arrays(one: Tree, other: Tree) -> bool:
    """Whether two trees consist of the same arrays, not only of the same values."""
    return all(a is b for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
