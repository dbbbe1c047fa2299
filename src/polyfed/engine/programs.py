"""The compiled programs of a simulation: advance by some rounds, prepare, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, Pending, Server, State
from polyfed.algorithms.shared.local_work import work_of
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core import trees
from polyfed.core.precision import Narrow
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.devices.layout import (
    BATCH_BYTES,
    BY_CLIENT,
    BY_HOST,
    CHUNK_BYTES,
    EVAL_BYTES,
    SAME,
    Layout,
    chunk_size,
    made_bytes,
)
from polyfed.engine.devices.unequal_steps import LENT_BYTES, best_chunk, client_steps, fixed_cost, typical_steps
from polyfed.engine.measure import FineTune, Measure, deployed, eval_block
from polyfed.engine.participation import Sampling
from polyfed.engine.privacy.mechanism import Moment, Privacy
from polyfed.engine.recent import Recent
from polyfed.engine.robust.singles import Singles
from polyfed.engine.round import lending as store
from polyfed.engine.round.chunks import over_clients
from polyfed.engine.round.on_devices import Stretch
from polyfed.engine.round.records import Carry, Data, Longest, Shard, Slots, Sums
from polyfed.engine.round.round import Round
from polyfed.problem.objective import BLOCK
from polyfed.problem.problem import Problem

CARRY = Carry(SAME, BY_CLIENT, SAME, SAME, SAME)  # pyright: ignore[reportArgumentType]
COMPILED = Recent(128)
"""Compiled programs, by what they depend on; each takes a hundred memory maps or more, of the 65,530 of a process."""
TRACED = Recent(512)
"""What tracing found out about methods and models, by what it depends on."""
SHARD = Shard(BY_HOST, SAME, SAME)  # pyright: ignore[reportArgumentType]
SOME = Data(BY_CLIENT, BY_CLIENT, SAME, SAME, BY_CLIENT, BY_CLIENT, SAME)  # pyright: ignore[reportArgumentType]
"""How data lies on the devices: a split of everybody's, and all of some clients."""


@dataclass
class Programs:
    """A method's programs for a problem, compiled once each for all problems of one task and shape.

    Counts the time that compiling takes.
    """

    problem: Problem
    method: Algorithm
    layout: Layout
    sampling: Sampling
    chunk: int | None
    data: Data
    splits: dict[str, Shard]
    compute: Narrow = None
    privacy: Privacy | None = None
    singles: Singles | None = None
    given_models: bool = False
    """Whether pure local models are in the states before clients prepare."""
    compile_seconds: float = 0.0
    steps: np.ndarray | None = None
    """What `typical_steps` gives, where clients take unequal numbers of them; and `fixed_cost`."""
    fixed: float = 0.0
    _sums: Tree = None
    """The shapes of a device's sums."""

    def __post_init__(self) -> None:
        bounds = Longest.of([self.problem.federation])
        params, made = self._model_shapes()
        example = max(self._example_bytes(), made)
        state = self._state_shapes(params)
        numbers = trees.count(params) + trees.count(state)
        local = work_of(self.method)
        batch = local.size
        read = example * min(bounds.train, BLOCK if batch == "full" else batch)
        slots = -(-self.sampling.capacity // self.layout.devices)
        chunk = self._chunk(slots, numbers, read, CHUNK_BYTES if batch == "full" else BATCH_BYTES)
        sizes = self.problem.federation.train.sizes
        work = (self.problem.task, self.layout, self.sampling, chunk, bounds, int(np.min(sizes)))
        self.round = Round(*work, self.compute, self.privacy, singles=self.singles)
        steps = client_steps(sizes, local.epochs, batch)
        if steps is not None:
            dealt = self.layout.devices > 1 and len(self.problem) * trees.bits(state) // 8 <= LENT_BYTES
            self.steps = typical_steps(steps, self.layout, self.sampling, dealt)
            self.fixed = fixed_cost(self.layout.device, trees.count(params), int(batch))
            chunk = best_chunk(self.steps, chunk, self.fixed) if self.chunk is None else chunk
            self.round = replace(self.round, chunk=chunk, uneven=True, dealt=dealt)
        self.measured_rows = most = max(1, EVAL_BYTES // max(1, made))
        longest = {name: min(most, int(np.max(self.problem.federation.split(name).sizes))) for name in self.splits}
        read = example * eval_block(max(longest.values()))
        self.measure_chunk = self._chunk(self.layout.clients_each, numbers, read, BATCH_BYTES)
        self.longest = longest

    @cached_property
    def placed_method(self) -> Algorithm:
        """The method on the devices, brought there once: a vector of hyper-parameters has an entry per client."""
        return self.everywhere(self.method)

    def _state_shapes(self, params: Tree) -> State:
        """The shapes of a client's state."""
        key = ("state", *shapes_of((self.method, params)))
        return TRACED.get(key, lambda: jax.eval_shape(self.method.init_client, params))

    def _model_shapes(self) -> tuple[Tree, int]:
        """The shapes of the parameters, and the bytes that the model makes of an example."""
        example, model = self.problem.example(), self.problem.model

        def made() -> tuple[Tree, int]:
            params = jax.eval_shape(self.problem.init)
            return params, made_bytes(model.apply, params, example)

        return TRACED.get(("model", model, example.shape, example.dtype, jnp.result_type(float).name), made)

    def advance(self, carry: Carry, first: int, count: int) -> Carry:
        """Run `count` rounds from round `first` on."""
        data = self.data if self.privacy is None else self.data._replace(secret=self.privacy.fresh())
        arguments = (self.placed_method, carry, data, np.int32(first), np.int32(count))
        specs = (SAME, CARRY, laid_out(data), SAME, SAME)
        return self.compiled(("advance", self.round), Stretch(self.round), specs, CARRY, arguments, donate=(1,))(
            *arguments
        )

    def lent(self, states: State, clients: np.ndarray) -> State:
        """Of everybody's states on the devices, those of (devices, slots) clients, each on the device of its slot.

        A slot must be on its client's host.
        """
        arguments = (states, self.everywhere(clients))

        def mine(states: State, clients: jax.Array) -> State:
            clients = self.round.of_host(clients)
            return store.take(states, clients, jnp.ones_like(clients, bool))

        return self.compiled(("lent", self.round), mine, (BY_CLIENT, SAME), BY_CLIENT, arguments)(*arguments)

    def preparing(self, method: Algorithm) -> Algorithm:
        """The method as clients prepare by it."""
        return method.with_given_models() if self.given_models and isinstance(method, MixtureMethod) else method

    def prepare(self, clients: jax.Array, states: State, data: Data | None = None) -> State:
        """What these clients do alone before the first round; `data`: theirs, where it is not everybody's."""
        data = self.data if data is None else data
        arguments = (self.preparing(self.placed_method), clients, states, data)
        specs = (SAME, BY_CLIENT, BY_CLIENT, laid_out(data))
        return self.compiled(("prepare", self.round.exact), self.round.prepare, specs, BY_CLIENT, arguments)(*arguments)

    def measure(
        self,
        server: Server,
        clients: jax.Array,
        states: State,
        finetune: FineTune | None = None,
        on_test: bool = False,
        data: Data | None = None,
        splits: dict[str, Shard] | None = None,
    ) -> Tree:
        """Metrics of these clients: {model: {split: Metrics}}; `on_test`: adapted on test rows."""
        rate = None
        if finetune is not None:  # its stepsize is an input: another one compiles nothing anew
            rate = np.asarray(finetune.lr, jnp.result_type(float))
            finetune = replace(finetune, lr=0.0)
        measure = Measure(self.round, self.measure_chunk, self.longest, finetune, on_test, self.in_line)
        data, splits = self.data if data is None else data, self.splits if splits is None else splits
        arguments = (self.placed_method, server, clients, states, data, splits, rate)
        program = self.compiled(
            ("measure", self.round.exact, self.measure_chunk, finetune, on_test),
            measure,
            (SAME, SAME, BY_CLIENT, BY_CLIENT, laid_out(data), splits_laid_out(data, splits), SAME),
            BY_CLIENT,
            arguments,
        )
        return program(*arguments)

    def personal(self, server: Server, clients: jax.Array, states: State, data: Data | None = None) -> Tree:
        """The model that each of these clients deploys, a leading client axis on each array."""

        def everyone(method: Algorithm, server: Server, clients: jax.Array, states: State, data: Data) -> Tree:
            def of_client(client: jax.Array, state: State) -> Tree:
                return deployed(self.round, method, server, state, client, data)

            return over_clients(of_client, clients, self.measure_chunk, states)

        data = self.data if data is None else data
        arguments = (self.placed_method, server, clients, states, data)
        specs = (SAME, SAME, BY_CLIENT, BY_CLIENT, laid_out(data))
        name = ("personal", self.round.exact, self.measure_chunk)
        return self.compiled(name, everyone, specs, BY_CLIENT, arguments)(*arguments)

    def own_share(self, clients: jax.Array, states: State) -> Tree:
        """The share of each of these clients' own model in what it deploys."""

        def everyone(method: Algorithm, clients: jax.Array, states: State) -> Tree:
            def of_client(_: jax.Array, state: State) -> jax.Array:
                assert method.own_share is not None
                return jnp.asarray(method.own_share(state))

            return over_clients(of_client, clients, self.measure_chunk, states)

        arguments = (self.placed_method, clients, states)
        name = ("own_share", self.round, self.measure_chunk)
        return self.compiled(name, everyone, (SAME, BY_CLIENT, BY_CLIENT), BY_CLIENT, arguments)(*arguments)

    def cohort(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The clients of a round and which of their slots are taken, both (devices, slots)."""
        data = laid_out(self.data) if self.data.numbers is None else SAME
        arguments = (self.data, np.int32(number))
        drawn = self.compiled(("cohort", self.round), self.round.cohort, (data, SAME), SAME, arguments)(*arguments)
        clients, taken = self.fetched(drawn)
        return clients, taken

    def no_uploads(self, server: Server, start: State) -> Sums:
        """The sum of no uploads, one on each device."""

        def zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            return self.placed(np.zeros((self.layout.host_devices, *leaf.shape), leaf.dtype))

        if self._sums is None:  # finding the shapes takes as long as a small round
            self._sums = jax.eval_shape(self.round.no_uploads, self.method, server, self.data, start)
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

        def work(*given: Tree) -> tuple[Sums, State, Slots]:
            *others, sums = given
            mine, states, slots = self.round.local(*others, sums=jax.tree.map(lambda leaf: leaf[0], sums))
            return jax.tree.map(lambda leaf: leaf[None], mine), states, slots

        data = self.data if data is None else data
        arguments = (self.placed_method, server, data, np.int32(number), clients, taken, states, sums)
        specs = (SAME, SAME, laid_out(data), SAME, BY_CLIENT, BY_CLIENT, BY_CLIENT, BY_CLIENT)
        return self.compiled(("local", self.round), work, specs, BY_CLIENT, arguments, donate=(6, 7))(*arguments)

    def update(self, server: Server, sums: Sums, number: int) -> tuple[Server, jax.Array, jax.Array, jax.Array]:
        """The server after a round, the uploads that went into it, the most steps of any client, the emphases' sum."""

        def step(method: Algorithm, server: Server, sums: Sums, moment: Moment | None) -> Tree:
            return self.round.update(method, server, jax.tree.map(lambda leaf: leaf[0], sums), moment)

        moment = None if self.privacy is None else Moment(self.data.seed, np.int32(number), self.privacy.fresh())
        arguments, specs = (self.placed_method, server, sums, moment), (SAME, SAME, BY_CLIENT, SAME)
        return self.compiled(("update", self.round), step, specs, SAME, arguments)(*arguments)

    def absorb(
        self,
        server: Server,
        number: int,
        clients: jax.Array,
        good: jax.Array,
        states: State,
        data: Data | None = None,
    ) -> State:
        """Hand the new server's broadcast to some clients; `states`, which may be `Pending`, are used up."""

        def hand(method: Algorithm, server: Server, data: Data, *given: Tree) -> State:
            number, clients, good, kept, within = given
            held = kept if within is None else Pending(kept, within)
            return self.round.absorb(method, server, data, number, clients, good, held)

        data = self.data if data is None else data
        held = (states.state, states.within) if isinstance(states, Pending) else (states, None)
        arguments = (self.placed_method, server, data, np.int32(number), clients, good, *held)
        specs = (SAME, SAME, laid_out(data), SAME, BY_CLIENT, BY_CLIENT, BY_CLIENT, BY_CLIENT)
        return self.compiled(("absorb", self.round), hand, specs, BY_CLIENT, arguments, donate=(6,))(*arguments)

    def everywhere(self, tree: Tree) -> Tree:
        """A copy on every device. The copy matters: compiled rounds write over the arrays that they are given."""
        copies = jax.tree.map(np.array, tree)
        if self.layout.hosts == 1:
            return self.layout.placed(copies, SAME)  # in one call: of small arrays, the calls are what costs time
        return jax.tree.map(lambda leaf: self.layout.placed(leaf, SAME), copies)

    @property
    def in_line(self) -> bool:
        """Whether clients that share a model are measured row after row: an accelerator takes them side by side."""
        return self.layout.device.platform == "cpu"

    @property
    def everyone(self) -> jax.Array:
        """Each device's own clients, by their places in the federation; the last repeats where a device has too few."""
        known, key, here = self.problem.placed, ("everyone", self.layout), self.layout.here
        if key not in known:
            clients = np.arange(here.start, here.stop, dtype=np.int32)
            known[key] = self.placed(np.minimum(clients, self.layout.population - 1))
        return known[key]

    def placed(self, leaf: np.ndarray) -> jax.Array:
        """An array with an entry per client, in equal parts on the devices; this process gives its own clients'."""
        return self.layout.placed(leaf, BY_CLIENT)

    def fetched(self, tree: Tree) -> Tree:
        """Arrays with an entry per client, or the same on all devices, in this process's memory."""
        return jax.tree.map(self.layout.fetched, tree)

    def compiled(
        self,
        name: Hashable,
        function: Callable[..., Tree],
        inputs: Tree,
        outputs: Tree,
        arguments: tuple[Tree, ...],
        donate: tuple[int, ...] = (),
    ) -> Callable[..., Tree]:
        """The program, compiled for the arguments' shapes; kept, so that a second run finds it.

        `name`: all that the function depends on beside its arguments. That is a round, which has the task.
        """

        def made() -> Callable[..., Tree]:
            begun = time.perf_counter()
            mapped = jax.shard_map(function, mesh=self.layout.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
            program = jax.jit(mapped, donate_argnums=donate).lower(*arguments).compile()
            self.compile_seconds += time.perf_counter() - begun
            return program

        return COMPILED.get((name, self.layout, *shapes_of(arguments)), made)

    def _chunk(self, clients: int, numbers: int, read: int, most: int = CHUNK_BYTES) -> int:
        """The same in all processes, whatever their machines have."""
        return hosts.agreed(lambda: chunk_size(clients, numbers, read, self.layout.device, self.chunk, most))

    def _example_bytes(self) -> int:
        """What one example takes once it is read as real numbers."""
        return prod(self.problem.federation.feature_shape) * jnp.result_type(float).itemsize


def shapes_of(arguments: Tree) -> tuple[Hashable, tuple[tuple[tuple[int, ...], np.dtype], ...]]:
    """What a program compiled or traced for these arguments depends on."""
    leaves, structure = jax.tree.flatten(arguments)
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def laid_out(data: Data) -> Data:
    """How this data lies on the devices: everybody's, or that of some clients."""
    if data.numbers is not None:
        return SOME
    held = None if data.validation is None else SHARD
    return Data(SHARD, SAME, SAME, BY_CLIENT, held, None, SAME)  # pyright: ignore[reportArgumentType]


def splits_laid_out(data: Data, splits: dict[str, Shard]) -> dict[str, Any]:
    """How the splits of this data lie on the devices."""
    return dict.fromkeys(splits, SHARD if data.numbers is None else BY_CLIENT)
