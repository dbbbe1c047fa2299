"""A simulated federation: its state between rounds, and what has travelled so far."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.algorithms.contract import Algorithm, State, global_model
from polyfed.algorithms.shared.local_work import work_of
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.algorithms.shared.trust import decided
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject
from polyfed.core.precision import Compute, narrow_type
from polyfed.core.trees import Tree
from polyfed.data import Population
from polyfed.engine import hosts
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.client_metrics import Metrics, as_metrics, evaluated_clients
from polyfed.engine.devices.layout import Devices, layout
from polyfed.engine.local_models import LocalModels, MakingProgress, bank_of
from polyfed.engine.measure import FineTune, deployed
from polyfed.engine.method_facts import facts_of
from polyfed.engine.participation import Participation, sampling
from polyfed.engine.privacy import mechanism as private
from polyfed.engine.privacy.accounting import Accountant
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.programs import Programs
from polyfed.engine.robust.attack import Attack
from polyfed.engine.robust.settings import Aggregate
from polyfed.engine.robust.singles import check_store, poisoned, singles
from polyfed.engine.scores import ScoredClients, scored_clients
from polyfed.engine.states.bank import LocalModelBank
from polyfed.engine.states.feed import Feed, data_on, single_client
from polyfed.engine.states.in_waves import Store, Streamed, choose
from polyfed.engine.states.on_devices import Counts, Residence, Resident
from polyfed.engine.states.shared_parts import SharedParts
from polyfed.problem.problem import DType, Init, Problem, precision

BALANCED = "class_weight = 'balanced' follows from all clients' labels, which privacy does not cover; give numbers"

COUNTERS = ("round", "iterations", "bits_up", "bits_down", "empty_rounds")


class Simulation:
    """Holds a federation between rounds. `simulate` is what most people call."""

    def __init__(
        self,
        problem: Problem,
        method: Algorithm,
        *,
        participation: Participation = 1.0,
        seed: int = 0,
        init: Init = None,
        dtype: DType = "float32",
        compute: Compute | None = None,
        devices: Devices | None = None,
        chunk: int | None = None,
        adapt_on_test: bool = False,
        store: Store = "auto",
        folder: Path | None = None,
        eval_clients: int | None = None,
        privacy: Privacy | None = None,
        aggregate: Aggregate | None = None,
        attack: Attack | None = None,
        local_models: LocalModels = None,
        making: MakingProgress | None = None,
    ) -> None:
        """`folder`: where states that are on disk go; `making`: told how far local models are that have to be made.

        The others: see `simulate`.
        """
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise PolyfedError(f"seed must be a whole number from 0 to 2^32 - 1, found {seed!r}")
        if isinstance(local_models, LocalModelBank) and isinstance(method, MixtureMethod):
            method = local_models.filled_in(method)
        method.check()
        if privacy is not None:
            privacy.check()
            if problem.balanced:
                raise PolyfedError(BALANCED)
            method = private.resolved(method, problem)
        elif method.resolve is not None:
            method = method.resolve(problem)
        self.sampling = sampling(participation, len(problem))
        method = decided(method, sampled=not self.sampling.full)
        _check_lengths(method, len(problem))
        if adapt_on_test and not np.all(problem.federation.test.sizes):
            raise PolyfedError("adapt_on_test needs test rows of every client, and some have none")
        self.problem, self.method, self.seed, self.adapt_on_test = problem, method, seed, adapt_on_test
        self.dtype: DType = dtype
        narrow = narrow_type(compute, dtype)
        self.compute: Compute = narrow or dtype
        where: dict[str, Any] = {"devices": devices, "chunk": chunk}
        self.bank = bank_of(problem, method, local_models, init=init, dtype=dtype, progress=making, **where)
        self.privacy = privacy
        self.accountant = None if privacy is None else Accountant(privacy, self.sampling)
        self.singles = singles(aggregate, attack, problem, self.sampling, privacy, seed)
        self.layout = layout(len(problem), devices)
        self.round = self.iterations = self.bits_up = self.bits_down = self.empty_rounds = 0
        self.seconds = 0.0
        self._measured: tuple[int, dict[FineTune | None, Metrics]] = (-1, {})
        with precision(dtype):
            self.evaluated = evaluated_clients(len(problem), eval_clients)
            traced = as_traced(method)
            whole = self.sampling.full and work_of(method).size == "full"
            params = _start(problem, init, seed) if self.bank is None else self.bank.start
            self.start = start = jax.tree.map(np.asarray, traced.init_client(params))
            self.on_demand = isinstance(problem.federation, Population)
            state_bytes = len(problem) * trees.bits(start) // 8
            self.store = hosts.agreed(lambda: choose(store, state_bytes, self.layout, self.on_demand))
            check_store(self.singles, self.store)
            in_blocks = whole and self.store == "device"
            data, splits = data_on(problem, self.layout, seed, in_blocks)
            if not self.on_demand:
                data = poisoned(problem, self.layout, data, self.singles)
            place = (self.layout, self.sampling, chunk, data, splits, narrow, privacy, self.singles)
            self.programs = Programs(problem, traced, *place)
            self.programs.given_models = self.bank is not None
            parts = SharedParts(self.bank)
            self.kept_start = parts.without(start)
            """what is kept of a client's state at the start"""
            self.parameters = trees.count(params)
            server = traced.init_server(params)
            self._residence: Residence
            if self.store == "device":
                self._residence = Resident(self.programs, server, start, parts)
            else:
                disk = None
                if self.store == "disk":
                    disk = folder if folder and hosts.is_first() else Path(tempfile.gettempdir())
                self._residence = Streamed(self.programs, server, start, Feed(self.programs, dtype), parts, disk)
            self.facts = facts_of(self.programs, self._residence.server, start)

    def prepare(self) -> None:
        """What each client does alone before round 1: pure local models and the like. It sends nothing."""
        self._measured = -1, {}
        with precision(self.dtype):
            self._residence.prepare()

    def advance(self, rounds: int) -> None:
        """Run some rounds; with the states on the devices, in one call of one compiled program."""
        with precision(self.dtype):
            compiled = self.programs.compile_seconds
            begun = time.perf_counter()
            done = self._residence.advance(self.round, rounds)
            self.seconds += time.perf_counter() - begun - (self.programs.compile_seconds - compiled)
        self.count(done, rounds)

    def count(self, done: Counts, rounds: int) -> None:
        """Take note of what happened in these rounds."""
        received = done.participants + (done.catching_up if self.method.absorb is not None else 0)
        self.round += rounds
        self.iterations += done.iterations
        self.bits_up += self.facts.wire_up * done.participants + done.bits
        self.bits_down += self.facts.wire_down * received
        self.empty_rounds += done.empty

    def measure(self, finetune: FineTune | None = None) -> Metrics:
        """The evaluated clients' metrics: of their personal and the global model, or of the fine-tuned one.

        What was measured of a round is remembered until the next: the last one is measured once.
        """
        if finetune is not None and self.global_params is None:
            raise PolyfedError(f"{self.method.name} has no global model to fine-tune")
        if self._measured[0] != self.round:
            self._measured = self.round, {}
        known = self._measured[1]
        if finetune not in known:
            with precision(self.dtype):
                measured = self._residence.measure(self.evaluated, finetune, self.adapt_on_test)
            self.remember(as_metrics(measured, self.problem, len(self.evaluated)), finetune)
        return dict(self._measured[1][finetune])  # where clients deploy the global model, both are the same object

    def scores(
        self,
        split: str = "test",
        finetune: FineTune | None = None,
        *,
        constant: bool = False,
    ) -> Iterator[ScoredClients]:
        """The scores that the evaluated clients' models give to their rows of a split, in blocks of clients.

        They are those of the models that `measure` measures: "personal" and "global", or "finetuned"; with `constant`,
        also those of the constant predictor. Clients of like sizes come together, so a block's clients are in ascending
        order, and the blocks need not be. A block takes a bounded memory, whatever the population.
        """
        return scored_clients(self, split, finetune, constant)

    @property
    def residence(self) -> Residence:
        """Where the states are."""
        return self._residence

    def remember(self, metrics: Metrics, finetune: FineTune | None = None) -> None:
        """Take note of what was measured of this round."""
        if self._measured[0] != self.round:
            self._measured = self.round, {}
        if "global" in metrics and "personal" not in metrics:
            metrics = {"personal": metrics["global"], **metrics}
        self._measured[1][finetune] = metrics

    @property
    def spent(self) -> JsonObject | None:
        """The privacy spent so far, as a summary tells it; None where there is none to count."""
        if self.accountant is None:
            return None
        return self.accountant.facts(self.round) | ({} if self.facts.uploads else {"epsilon": 0.0})

    @property
    def compile_seconds(self) -> float:
        return self.programs.compile_seconds

    @property
    def global_params(self) -> Tree:
        """The global model; None for a method without one."""
        return _numpy(global_model(self._residence.server))

    @property
    def server(self) -> Tree:
        return _numpy(self._residence.server)

    @property
    def client_state(self) -> State:
        """Every client's state: a leading client axis on each array."""
        with precision(self.dtype):
            return self._residence.states()

    @property
    def excluded(self) -> dict[str, int]:
        """How often each client's update was not finite, of those with any."""
        return {self.problem.federation.clients[i]: count for i, count in sorted(self._residence.excluded.items())}

    def personal(self, client: str | int) -> Tree:
        """The model that a client deploys."""
        index = client if isinstance(client, int) else self.problem.federation.index(client)
        if not 0 <= index < len(self.problem):
            raise PolyfedError(f"client {index} does not exist; there are {len(self.problem)}, numbered from 0")
        with precision(self.dtype):
            programs, here = self.programs, self._residence
            if self.layout.hosts > 1:  # it is made where the client's examples are
                models = next(here.personal(np.array([index], np.int32)))
                return jax.tree.map(lambda leaf: leaf[0], models)
            state, place, data = here.state(index), index, programs.data
            if self.on_demand:
                place, data = 0, single_client(self.problem, index, self.seed)[0]
            return _numpy(deployed(programs.round, programs.method, here.server, state, jnp.asarray(place), data))

    def personal_blocks(self) -> Iterator[Tree]:
        """The evaluated clients' deployed models, in blocks of clients in their order: a leading axis of clients."""
        with precision(self.dtype):
            yield from self._residence.personal(self.evaluated)

    @property
    def own_share(self) -> np.ndarray | None:
        """The share of each evaluated client's own model in what it deploys; None where that is not known."""
        if self.programs.method.own_share is None:
            share = self.facts.own_share
            return None if share is None else np.full(len(self.evaluated), share, np.float64)
        with precision(self.dtype):
            return self._residence.own_share(self.evaluated)

    @property
    def server_weights(self) -> np.ndarray | None:
        """Each client's share of all the server's averages so far: they add up to 1. None where nothing is averaged."""
        shares = self._residence.shares
        total = float(np.sum(shares))
        return shares / total if total > 0 and global_model(self._residence.server) is not None else None

    def state(self) -> Snapshot:
        """All that a checkpoint must keep, apart from the counters; the same for any number of devices."""
        (clients, rows), excluded = self._residence.rows(), np.zeros(len(self.problem), np.int32)
        for client, count in self._residence.excluded.items():
            excluded[client] = count
        norms = tuple(self.resident.norms) if self.store == "device" else ()
        return Snapshot(self.server, clients, excluded[clients], self._residence.shares[clients], rows, norms)

    def restore(self, state: Snapshot, counters: dict[str, int], seconds: float) -> None:
        """Go on from a checkpoint."""
        self._measured = -1, {}
        with precision(self.dtype):
            self._residence.restore(state)
        for name in COUNTERS:
            setattr(self, name, counters[name])
        self.seconds = seconds

    def fetch(self) -> None:
        """Bring states that a sweep left on its devices to the host."""
        if isinstance(self._residence, Resident):
            self._residence.fetch()

    def drop(self) -> None:
        """Forget the states, to make room for other runs; what was measured stays."""
        if isinstance(self._residence, Resident):
            self._residence.drop()

    @property
    def resident(self) -> Resident:
        """Where the states are, if that is on the devices."""
        if not isinstance(self._residence, Resident):
            raise PolyfedError(f"the clients' states are kept in store {self.store!r}, expected 'device'")
        return self._residence

    @property
    def counters(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in COUNTERS}


def _start(problem: Problem, init: Init, seed: int) -> Tree:
    """The parameters that training starts from, on the host; a named start is made once for a seed."""
    if init is not None and not isinstance(init, str):
        return problem.init(init, seed)
    key = ("init", init, seed, jnp.result_type(float).name)
    if key not in problem.traced:
        problem.traced[key] = jax.device_get(problem.init(init, seed))
    return problem.traced[key]


def as_traced(method: Algorithm) -> Algorithm:
    """The method with its numbers as arrays, in the precision in force: whole numbers stay whole."""
    real = jnp.result_type(float)
    return jax.tree.map(lambda leaf: np.asarray(leaf, real if np.asarray(leaf).dtype.kind == "f" else np.int32), method)


def _check_lengths(method: Algorithm, clients: int) -> None:
    """A hyper-parameter that is a vector must have one value for each client."""
    for where, leaf in jax.tree_util.tree_flatten_with_path(method)[0]:
        if np.ndim(leaf) > 1 or (np.ndim(leaf) == 1 and len(leaf) != clients):
            name = jax.tree_util.keystr(where, simple=True, separator=".")
            found = f"{len(leaf)} values" if np.ndim(leaf) == 1 else f"shape {np.shape(leaf)}"
            raise PolyfedError(f"{method.name}: {name} has {found}, expected one for each of {clients} clients")


def _numpy(tree: Tree) -> Tree:
    return jax.tree.map(np.asarray, tree)
