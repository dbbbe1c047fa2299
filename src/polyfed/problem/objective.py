"""One client's objective: what an algorithm may ask of a client's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from polyfed.core import randomness, trees
from polyfed.core.precision import Narrow
from polyfed.core.trees import Tree
from polyfed.models.dense import NARROW
from polyfed.problem import deferred

if TYPE_CHECKING:
    from polyfed.problem.task import Task

BLOCK = 4096
"""The rows that a pass over a client's whole data takes at a time; a client with fewer is taken in one piece."""


Carry = TypeVar("Carry")
"""What local steps hand on from one to the next: a pytree."""
AHEAD = 1 << 14
"""The most rows whose order is drawn before the first step, all at once, which costs less than step by step."""

NEARBY_BYTES = 256 << 10
"""The most that a client's rows may take to be copied together before local work that reads all of them."""

MASKS = 2**31 - 2
"""What a client's key is folded with for the draws of the model itself (dropout), apart from those of the batches."""


class Batch(NamedTuple):
    """Rows of an example array (None: all of them), and the weight of each: 0 where the batch is padded.

    Without weights: all of the client's rows. `key` is for models that draw in training, and None elsewhere.
    `examples`: the array that the rows are of, where it is not that of the objective.
    """

    rows: jax.Array | None
    weights: jax.Array | None
    key: jax.Array | None = None
    examples: Examples | None = None


class Examples(NamedTuple):
    """The rows of all clients, one client after another."""

    x: jax.Array
    y: jax.Array


@dataclass(frozen=True)
class Batching:
    """How local work is cut into batches: `steps` of them or, if given, `epochs` passes; of `size` rows, or "full".

    Without replacement the rows are shuffled anew for each pass, and the last batch of a pass may be smaller; `even`
    cuts it into as many batches whose sizes differ by one row at most. With replacement every batch is an independent
    draw.
    """

    size: int | Literal["full"]
    steps: int
    epochs: int | None = None
    replace: bool = False
    even: bool = False

    def fewest(self, rows: int) -> int:
        """The rows of the smallest batch of a pass over so many: of 21 in batches of 20 one or, if `even`, 10."""
        if self.size == "full" or self.size >= rows:
            return rows
        if self.replace:
            return self.size
        return rows // -(-rows // self.size) if self.even else rows % self.size or self.size


@dataclass(frozen=True)
class Objective:
    """f_i(x) = (1/n_i) sum_j loss(model(x, a_ij), b_ij) + l2/2 |x|^2, of one client i, in one round.

    Made by the engine inside its compiled program: `start` and `size` say which rows are the client's.
    """

    task: Task
    examples: Examples
    start: jax.Array
    size: jax.Array
    longest: int
    """The size of the largest client: the bound of any pass over a client's rows."""
    client: jax.Array
    """The client's place in the federation."""
    round: jax.Array
    """The number of the round, 0 for the first."""
    shared_key: jax.Array
    """The round's key that the server and all clients know: for draws that must be the same everywhere."""
    block: Examples | None = None
    """The client's own rows, padded to `longest`, where the engine has them laid out so: no pass then gathers them."""
    validation: Objective | None = None
    """f_i on the client's validation rows, where the data has any."""
    compute: Narrow = None
    """The type that the model computes in, where it is not that of the parameters."""
    shortest: int = 0
    """The size of the smallest client, where known: if all need as many batches for a pass, their number is."""
    platform: str | None = None
    """The kind of device that it runs on, where local work may be arranged for it."""

    def value(self, params: Tree, batch: Batch | None = None) -> jax.Array:
        """f_i on a batch, or on all of the client's rows."""
        return self._pass(self._batch_loss, params, batch) + self.task.ridge(params)

    def grad(self, params: Tree, batch: Batch | None = None) -> Tree:
        """The gradient of f_i on a batch, or on all of the client's rows."""
        loss = self._pass(jax.grad(self._batch_loss), params, batch)
        return trees.tied(trees.add(loss, jax.grad(self.task.ridge)(params)))

    def hessian_product(self, params: Tree, direction: Tree, batch: Batch | None = None) -> Tree:
        """The Hessian of f_i at `params` times a direction, exactly; on a batch, or on all of the client's rows."""
        return jax.jvp(lambda x: self.grad(x, batch), (params,), (direction,))[1]

    def own(self, value: Any) -> Any:
        """This client's value of a hyper-parameter that is one number for all, or a vector with one for each."""
        return value[self.client] if jnp.ndim(value) == 1 else value

    def weight(self, weighting: str) -> jax.Array | float:
        """The client's weight in a mean over clients: its number of rows ("size"), or one for all ("uniform")."""
        return self.size.astype(jnp.result_type(float)) if weighting == "size" else 1.0

    def train(
        self,
        step: Callable[[Carry, Batch | None], Carry],
        carry: Carry,
        key: jax.Array,
        batching: Batching,
        count: jax.Array | None = None,
        earlier: jax.Array | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Run `carry = step(carry, batch)` over the client's batches; also return how many steps that took.

        `count`, which may be drawn, takes the place of the batching's own number of steps. `earlier`: the passes that
        were done before with this key; these go on where one call for all of them would.

        The batch is None where a step takes all of the client's rows, which is what `value` and `grad` read it as.
        For a model that draws in training (dropout) a batch has a key, that of the step.
        """
        size = self.longest if batching.size == "full" else min(batching.size, self.longest)
        whole = batching.size == "full" or (batching.size >= self.longest and not batching.replace)
        per_epoch = self._batches(size)
        steps = batching.steps if batching.epochs is None else batching.epochs * per_epoch
        steps = steps if count is None else count
        if batching.replace and not whole:
            size = int(batching.size)
        read = steps * size if isinstance(steps, int) and not whole else None
        ahead = read is not None and read <= AHEAD
        near, first = (None, self.start) if read is None else self._copied(read)

        def rows_at(index: jax.Array) -> Batch | None:
            if whole:
                return None
            if batching.replace:
                draw = jax.random.randint(jax.random.fold_in(key, index), (size,), 0, self.size)
                return Batch(first + draw, jnp.ones(size, jnp.result_type(float)))
            begin, end = self._part(index % per_epoch, per_epoch, size, batching.even)
            positions = begin + jnp.arange(size)
            inside = positions < end
            number = index // per_epoch
            shuffle = jax.random.fold_in(key, number if earlier is None else earlier + number)
            unroll = 1 if ahead else randomness.UNROLL
            rows = randomness.shuffled(shuffle, self.size, jnp.where(inside, positions, 0), unroll=unroll)
            return Batch(first + rows, inside.astype(jnp.result_type(float)))

        batches = jax.vmap(rows_at)(jnp.arange(steps)) if ahead else None

        def batch_at(index: jax.Array) -> Batch | None:
            batch = rows_at(index) if batches is None else jax.tree.map(lambda leaf: leaf[index], batches)
            batch = batch if batch is None else batch._replace(examples=near)
            if self.task.model.train_apply is None:
                return batch
            number = index if earlier is None else earlier * per_epoch + index
            own = jax.random.fold_in(jax.random.fold_in(key, MASKS), number)
            return (Batch(None, None) if batch is None else batch)._replace(key=own)

        carry = lax.optimization_barrier(carry)  # else XLA keeps every client's copy of what the caller still needs

        def body(index: jax.Array, carry: Tree) -> Tree:
            return step(carry, batch_at(index))

        if self.platform == "cpu":
            carry = _outputs_first_loop(steps, body, carry)
        elif isinstance(steps, int) and ahead and self.platform is not None:
            carry = deferred.loop(steps, body, carry, self.platform)
        else:
            carry = lax.fori_loop(0, steps, body, carry)
        return carry, jnp.asarray(steps, jnp.int32)

    def _batches(self, size: int) -> jax.Array | int:
        """How many batches a pass takes; a plain number where it is that of every client."""
        least, most = -(-self.shortest // size), -(-self.longest // size)
        return most if least == most else (self.size + size - 1) // size

    def _part(
        self, place: jax.Array, batches: jax.Array | int, size: int, even: bool
    ) -> tuple[jax.Array, jax.Array | int]:
        """Where a batch of a pass begins, and before which position it ends; or where all do, the last one being short.

        Even ones have size // batches rows, and the first size % batches of them one more. That never exceeds an int32.
        """
        if not even:
            return place * size, self.size
        rows, longer = self.size // batches, self.size % batches
        begin = place * rows + jnp.minimum(place, longer)
        return begin, begin + rows + (place < longer)

    def _copied(self, count: int) -> tuple[Examples | None, jax.Array]:
        """The client's rows and where they begin in the copy, before work that reads `count` rows; or None.

        A processor reads rows one after another faster than here and there.
        """
        there = len(self.examples.y)
        size = sum(part.dtype.itemsize * prod(part.shape[1:]) for part in self.examples) * self.longest
        if self.platform != "cpu" or count < self.longest or self.longest > there or size > NEARBY_BYTES:
            return None, self.start
        begin = jnp.minimum(self.start, there - self.longest)
        parts = (lax.dynamic_slice_in_dim(part, begin, self.longest) for part in self.examples)
        return Examples(*map(lax.optimization_barrier, parts)), self.start - begin

    def rows(self, first: jax.Array | int, count: int) -> Batch:
        """The client's rows first..first+count-1 in their own order; beyond its last row, that row with weight 0."""
        positions = first + jnp.arange(count)
        inside = positions < self.size
        return Batch(self.start + jnp.where(inside, positions, self.size - 1), inside.astype(jnp.result_type(float)))

    def _batch_loss(self, params: Tree, examples: Examples, batch: Batch) -> jax.Array:
        return self.task.batch_loss(params, examples, batch, self.compute)

    def _pass(self, function: Callable[[Tree, Examples, Batch], Tree], params: Tree, batch: Batch | None) -> Tree:
        """A mean over a batch, or over all of the client's rows, block by block."""
        if batch is not None and batch.weights is not None:
            return function(params, batch.examples or self.examples, batch)
        key = None if batch is None else batch.key
        if self.block is not None:
            inside = jnp.arange(self.longest) < self.size
            return function(params, self.block, Batch(None, inside.astype(jnp.result_type(float)), key))
        if self.longest <= BLOCK:
            return function(params, self.examples, self.rows(0, self.longest)._replace(key=key))

        def block(index: jax.Array, total: Tree) -> Tree:
            rows = self.rows(index * BLOCK, BLOCK)
            weight = jnp.sum(jnp.asarray(rows.weights))
            if key is not None:
                rows = rows._replace(key=jax.random.fold_in(key, index))
            return trees.add(total, trees.scale(weight, function(params, self.examples, rows)))

        shape = jax.eval_shape(function, params, self.examples, self.rows(0, BLOCK))
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        total = lax.fori_loop(0, (self.size + BLOCK - 1) // BLOCK, block, zero)
        return trees.scale(1.0 / self.size, total)


def _outputs_first_loop(steps: jax.Array | int, body: Callable[[jax.Array, Tree], Tree], carry: Tree) -> Tree:
    """`fori_loop` that keeps narrow matrices outputs first from step to step, as their products take them on a CPU.

    Between steps they are vectors: the compiler is free to turn the axes of a matrix, and would do so in every step.
    """
    leaves, structure = jax.tree.flatten(carry)
    shapes = [leaf.shape if leaf.ndim == 2 and leaf.shape[1] <= NARROW else None for leaf in leaves]

    def kept(carry: Tree) -> list[jax.Array]:
        leaves = jax.tree.leaves(carry)
        return [leaf if shape is None else leaf.T.ravel() for leaf, shape in zip(leaves, shapes, strict=True)]

    def given(kept: list[jax.Array]) -> Tree:
        pairs = zip(kept, shapes, strict=True)
        return structure.unflatten([leaf if shape is None else leaf.reshape(shape[::-1]).T for leaf, shape in pairs])

    def turned(index: jax.Array, leaves: list[jax.Array]) -> list[jax.Array]:
        return kept(body(index, given(leaves)))

    return given(lax.fori_loop(0, steps, turned, lax.optimization_barrier(kept(carry))))
