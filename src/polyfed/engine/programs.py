"""The compiled programs of a simulation: advance by some rounds, prepare, measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from polyfed import trees
from polyfed.algorithms.base import Algorithm, Server, State
from polyfed.engine import store
from polyfed.engine.devices import AXIS, BATCH_BYTES, CHUNK_BYTES, EVAL_BYTES, Layout, chunk_size, made_bytes
from polyfed.engine.measure import EVAL_BLOCK, FineTune, Measure, deployed
from polyfed.engine.participation import Sampling
from polyfed.engine.records import Carry, Data, Longest, Shard, Slots, Sums
from polyfed.engine.round import Round, over_clients
from polyfed.objective import BLOCK, Examples
from polyfed.problem import SPLITS, Problem

CARRY = Carry(P(), P(AXIS), P(), P())  # pyright: ignore[reportArgumentType]
KEPT = 48
"""The compiled programs that a problem keeps: each takes a hundred memory maps or more, of the 65,530 of a process."""
PADDING = 1.25
"""Rows are laid out client by client where that takes at most so many times their number."""
DATA = Data(P(), P(), P(), P(AXIS), P(), P())  # pyright: ignore[reportArgumentType]
SOME = Data(P(AXIS), P(AXIS), P(), P(), P(AXIS), P(AXIS))  # pyright: ignore[reportArgumentType]
"""How data lies on the devices: everybody's, and that of some clients."""


@dataclass
class Programs:
    """Compiles a method's programs for a problem, once each, and counts the time that takes."""

    problem: Problem
    method: Algorithm
    layout: Layout
    sampling: Sampling
    chunk: int | None
    data: Data
    splits: dict[str, Shard]
    compile_seconds: float = 0.0
    _sums: Any = None
    """The shapes of a device's sums."""

    def __post_init__(self) -> None:
        bounds = Longest.of([self.problem.federation])
        device = self.layout.mesh.devices.flat[0]
        params = jax.eval_shape(self.problem.init)
        made = made_bytes(self.problem.model.apply, params, self.problem.example())
        example = max(self._example_bytes(), made)
        numbers = trees.count(params) + trees.count(jax.eval_shape(self.method.init_client, params))
        batch: Any = getattr(self.method, "batch", "full")
        read = example * min(bounds.train, BLOCK if batch == "full" else int(batch))
        slots = -(-self.sampling.capacity // self.layout.devices)
        most = CHUNK_BYTES if batch == "full" else BATCH_BYTES
        chunk = chunk_size(slots, numbers, read, device, self.chunk, most)
        self.round = Round(self.problem, self.layout, self.sampling, chunk, bounds)
        self.measured_rows = most = max(1, EVAL_BYTES // max(1, made))
        longest = {name: min(most, int(np.max(self.problem.federation.split(name).sizes))) for name in self.splits}
        read = example * min(EVAL_BLOCK, max(longest.values()))
        self.method = self.everywhere(self.method)  # once: a vector of hyper-parameters has an entry per client
        self.measure_chunk = chunk_size(self.layout.rows, numbers, read, device, self.chunk)
        self.longest = longest

    def advance(self, carry: Carry, first: int, count: int) -> Carry:
        """Run `count` rounds from round `first` on."""

        program = self.compiled(
            ("advance", self.round),
            self.round.stretch,
            (P(), CARRY, DATA, P(), P()),
            CARRY,
            (self.method, carry, self.data, jnp.int32(first), jnp.int32(count)),
            donate=(1,),
        )
        return program(self.method, carry, self.data, jnp.int32(first), jnp.int32(count))

    def lent(self, states: State, clients: np.ndarray) -> State:
        """Of everybody's states on the devices, those of (devices, slots) clients, each on the device of its slot."""
        arguments = (states, self.everywhere(clients))

        def mine(states: State, clients: jax.Array) -> State:
            return store.take(states, clients, jnp.ones_like(clients, bool))

        return self.compiled(("lent", self.round), mine, (P(AXIS), P()), P(AXIS), arguments)(*arguments)

    def prepare(self, clients: jax.Array, states: State, data: Data | None = None) -> State:
        """What these clients do alone before the first round; `data`: theirs, where it is not everybody's."""
        data = self.data if data is None else data
        arguments = (self.method, clients, states, data)
        specs = (P(), P(AXIS), P(AXIS), laid_out(data))
        return self.compiled(("prepare", self.round), self.round.prepare, specs, P(AXIS), arguments)(*arguments)

    def measure(
        self,
        server: Server,
        clients: jax.Array,
        states: State,
        finetune: FineTune | None = None,
        on_test: bool = False,
        data: Data | None = None,
        splits: dict[str, Shard] | None = None,
    ) -> Any:
        """Metrics of these clients: {model: {split: Metrics}}; `on_test`: adapted on test rows."""
        rate = None
        if finetune is not None:  # its stepsize is an input: another one compiles nothing anew
            rate = jnp.asarray(finetune.lr, jnp.result_type(float))
            finetune = replace(finetune, lr=0.0)
        measure = Measure(self.round, self.measure_chunk, self.longest, finetune, on_test)
        data, splits = self.data if data is None else data, self.splits if splits is None else splits
        arguments = (self.method, server, clients, states, data, splits, rate)
        program = self.compiled(
            ("measure", self.round, self.measure_chunk, finetune, on_test),
            measure,
            (P(), P(), P(AXIS), P(AXIS), laid_out(data), P() if data.numbers is None else P(AXIS), P()),
            P(AXIS),
            arguments,
        )
        return program(*arguments)

    def personal(self, server: Server, clients: jax.Array, states: State, data: Data | None = None) -> Any:
        """The model that each of these clients deploys, a leading client axis on each array."""

        def everyone(method: Algorithm, server: Server, clients: jax.Array, states: State, data: Data) -> Any:
            def one(client: jax.Array, state: State) -> Any:
                return deployed(self.round, method, server, state, client, data)

            return over_clients(one, clients, self.measure_chunk, states)

        data = self.data if data is None else data
        arguments = (self.method, server, clients, states, data)
        specs = (P(), P(), P(AXIS), P(AXIS), laid_out(data))
        program = self.compiled(("personal", self.round, self.measure_chunk), everyone, specs, P(AXIS), arguments)
        return program(*arguments)

    def own_share(self, clients: jax.Array, states: State) -> Any:
        """The share of each of these clients' own model in what it deploys."""

        def everyone(method: Algorithm, clients: jax.Array, states: State) -> Any:
            def one(_: jax.Array, state: State) -> jax.Array:
                assert method.own_share is not None
                return jnp.asarray(method.own_share(state))

            return over_clients(one, clients, self.measure_chunk, states)

        arguments = (self.method, clients, states)
        name = ("own_share", self.round, self.measure_chunk)
        return self.compiled(name, everyone, (P(), P(AXIS), P(AXIS)), P(AXIS), arguments)(*arguments)

    def cohort(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The clients of a round and which of their slots are taken, both (devices, slots)."""
        arguments = (self.data, jnp.int32(number))
        found = self.compiled(("cohort", self.round), self.round.cohort, (DATA, P()), P(), arguments)(*arguments)
        clients, taken = jax.device_get(found)
        return clients, taken

    def nothing(self, server: Server, start: State) -> Sums:
        """The sum of no uploads, one on each device."""

        def look(server: Server, state: State) -> Sums:
            return self.round.nothing(self.method, server, self.data, state)

        def zeros(leaf: Any) -> jax.Array:
            return self.placed(np.zeros((self.layout.devices, *leaf.shape), leaf.dtype))

        if self._sums is None:  # to look takes as long as a small round
            self._sums = jax.eval_shape(look, server, start)
        return jax.tree.map(zeros, self._sums)

    def local(
        self,
        server: Server,
        number: int,
        clients: jax.Array,
        taken: jax.Array,
        states: State,
        sums: Sums,
        data: Data | None = None,
    ) -> tuple[Sums, State, Slots]:
        """The local work of some clients in a round; `states` and `sums` are used up."""

        def work(*given: Any) -> tuple[Sums, State, Slots]:
            *others, sums = given
            mine, states, slots = self.round.local(*others, sums=jax.tree.map(lambda leaf: leaf[0], sums))
            return jax.tree.map(lambda leaf: leaf[None], mine), states, slots

        data = self.data if data is None else data
        arguments = (self.method, server, data, jnp.int32(number), clients, taken, states, sums)
        specs = (P(), P(), laid_out(data), P(), P(AXIS), P(AXIS), P(AXIS), P(AXIS))
        return self.compiled(("local", self.round), work, specs, P(AXIS), arguments, donate=(6, 7))(*arguments)

    def update(self, server: Server, sums: Sums) -> tuple[Server, jax.Array, jax.Array, jax.Array]:
        """The server after a round, the uploads that went into it, the most steps of any client, the emphases' sum."""

        def step(method: Algorithm, server: Server, sums: Sums) -> tuple[Server, jax.Array, jax.Array, jax.Array]:
            return self.round.update(method, server, jax.tree.map(lambda leaf: leaf[0], sums))

        arguments = (self.method, server, sums)
        return self.compiled(("update", self.round), step, (P(), P(), P(AXIS)), P(), arguments)(*arguments)

    def absorb(
        self,
        server: Server,
        number: int,
        clients: jax.Array,
        good: jax.Array,
        states: State,
        data: Data | None = None,
    ) -> State:
        """Hand the new server's broadcast to some clients; `states` are used up."""
        data = self.data if data is None else data
        arguments = (self.method, server, data, jnp.int32(number), clients, good, states)
        specs = (P(), P(), laid_out(data), P(), P(AXIS), P(AXIS), P(AXIS))
        name = ("absorb", self.round)
        return self.compiled(name, self.round.absorb, specs, P(AXIS), arguments, donate=(6,))(*arguments)

    def everywhere(self, tree: Any) -> Any:
        """A copy on every device. The copy matters: compiled rounds write over the arrays that they are given."""
        return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf), self.layout.everywhere), tree)

    def placed(self, leaf: np.ndarray) -> jax.Array:
        """An array with an entry per client, on the devices in equal parts."""
        return jax.device_put(leaf, self.layout.by_client)

    def compiled(
        self,
        name: Any,
        function: Callable[..., Any],
        inputs: Any,
        outputs: Any,
        arguments: tuple[Any, ...],
        donate: tuple[int, ...] = (),
    ) -> Callable[..., Any]:
        """The program, compiled for the arguments' shapes; kept with the problem, so that a second run finds it."""
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(arguments))
        key = (name, self.layout, jax.tree.structure(arguments), shapes)
        known = self.problem.programs
        if key in known:
            known[key] = known.pop(key)  # the latest used stands last
            return known[key]
        begun = time.perf_counter()
        mapped = jax.shard_map(function, mesh=self.layout.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
        known[key] = jax.jit(mapped, donate_argnums=donate).lower(*arguments).compile()
        self.compile_seconds += time.perf_counter() - begun
        while len(known) > KEPT:
            del known[next(iter(known))]
        return known[key]

    def _example_bytes(self) -> int:
        """What one example takes once it is read as real numbers."""
        return prod(self.problem.federation.feature_shape) * jnp.result_type(float).itemsize


def laid_out(data: Data) -> Data:
    """How this data lies on the devices."""
    return DATA if data.numbers is None else SOME


def resident(problem: Problem, layout: Layout, seed: int, in_blocks: bool) -> tuple[Data, dict[str, Shard]]:
    """The problem's data on the layout's devices: one copy on a CPU, whose devices share memory.

    `in_blocks`: a second copy of the training rows, client by client, if padding it costs little.
    """
    key = ("data", layout, str(jnp.result_type(float)))
    if key not in problem.placed:
        problem.placed[key] = {
            name: _shard(problem, name, layout.everywhere) for name in SPLITS if len(problem.federation.split(name).y)
        }
    splits = problem.placed[key]
    sizes = problem.federation.train.sizes
    blocks = None
    if in_blocks and max(sizes) <= BLOCK and len(sizes) * max(sizes) <= PADDING * sum(sizes):
        if (key, "blocks") not in problem.placed:
            problem.placed[key, "blocks"] = _blocks(problem, layout)
        blocks = problem.placed[key, "blocks"]
    place = layout.everywhere
    ids = jax.device_put(problem.client_ids, place)
    number = jax.device_put(np.uint32(seed), place)
    return Data(splits["train"], ids, number, blocks, splits.get("validation")), splits


def _blocks(problem: Problem, layout: Layout) -> Examples:
    """The training rows as (clients, rows, ...): short clients are padded with zeros, and so are the devices."""
    offsets, sizes = problem.federation.train.offsets, problem.federation.train.sizes

    def laid_out(flat: np.ndarray) -> jax.Array:
        blocks = np.zeros((layout.rows * layout.devices, max(sizes), *flat.shape[1:]), flat.dtype)
        for client, size in enumerate(sizes):
            blocks[client, :size] = flat[offsets[client] : offsets[client] + size]
        return jax.device_put(blocks, layout.by_client)

    x, y = problem.examples("train")
    return Examples(laid_out(x), laid_out(y))


def _shard(problem: Problem, split: str, place: NamedSharding) -> Shard:
    x, y = problem.examples(split)
    part = problem.federation.split(split)
    starts, sizes = part.offsets[:-1].astype(np.int32), part.sizes.astype(np.int32)
    return Shard(
        Examples(jax.device_put(x, place), jax.device_put(y, place)),
        jax.device_put(starts, place),
        jax.device_put(sizes, place),
    )
