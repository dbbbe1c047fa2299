"""Make a bank of pure local models, block by block of clients: what is on the disk is the checkpoint."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open

from polyfed.algorithms import FLIX, Local
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.local_models import LocalModel, LocalTraining, gradient_norm, pure_local_model
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core import randomness
from polyfed.core.errors import PolyfedError, own_names
from polyfed.core.files import JsonObject, check_folder, write_csv, write_text
from polyfed.core.randomness import Purpose
from polyfed.core.schedules import Schedule
from polyfed.core.startup import cache_folder
from polyfed.core.trees import Tree
from polyfed.engine import hosts
from polyfed.engine.checkpoint.tensors import TensorFile, named
from polyfed.engine.devices.layout import BY_CLIENT, SAME, Devices, layout
from polyfed.engine.participation import sampling
from polyfed.engine.programs import Programs, laid_out
from polyfed.engine.round.chunks import over_clients
from polyfed.engine.round.records import Data
from polyfed.engine.states.bank import (
    ABOUT,
    CLIENTS,
    MODELS,
    UNFINISHED,
    LocalModelBank,
    bank_digest,
    bank_identity,
    refuse_other_bank,
)
from polyfed.engine.states.feed import Feed, data_on
from polyfed.problem.problem import DType, Init, Problem, precision

log = logging.getLogger("polyfed")
SYNC = 1.0
"""The seconds between two marks of what is done: to wait for the disk takes longer than to train a small model."""
PACE = 5.0
"""The seconds between two lines about the making."""
LocalModels = str | Path | LocalModelBank | None
"""A bank, or the folder that it is in, or is to be."""
MakingProgress = Callable[[int, int, float], None]
"""Called with the clients that are done, their number, and the seconds of training so far."""


def in_words(say: Callable[[str], None]) -> MakingProgress:
    """Logs a line about the progress now and then."""
    said = time.monotonic()

    def progress(done: int, total: int, seconds: float) -> None:
        nonlocal said
        if time.monotonic() - said > PACE or (done == total and seconds > PACE):
            said = time.monotonic()
            say(f"pure local models: {done} of {total} clients, {seconds:.0f} s")

    return progress


class _Made(NamedTuple):
    """What is known of a client's model."""

    model: LocalModel
    start_norm: jax.Array


class _Unfinished(NamedTuple):
    """The file that is being filled, which of its clients are done, and the seconds that these took."""

    file: TensorFile
    done: np.ndarray
    spent: float


@own_names
def local_models(
    problem: Problem,
    folder: str | Path | None = None,
    *,
    epochs: int | None = None,
    lr: Schedule = 0.1,
    batch: int | Literal["full"] = 20,
    tolerance: float | None = None,
    patience: int | None = None,
    even: bool = False,
    seed: int = 0,
    init: Init = None,
    dtype: DType = "float32",
    devices: Devices | None = None,
    chunk: int | None = None,
    progress: MakingProgress | None = None,
) -> LocalModelBank:
    """The pure local models of all clients, x_i* = argmin f_i: made once, then found in `folder`.

    Without `epochs`, by Newton's method to a gradient norm of `tolerance` (linear models). With them, by SGD with
    stepsize `lr`, a number or a schedule that counts epochs, on batches of `batch` rows; `even` cuts passes into ones
    of like size. A client then stops after `epochs`, as soon as its gradient norm is at most `tolerance`, or after
    `patience` epochs without a lower validation loss; with patience it keeps the model that had the lowest.

    A bank has a folder of its own in `folder` (by default in polyfed's cache), named by a digest of the rows, the
    model, the start and the settings. If it is interrupted while it is made, the next call goes on from there, to the
    same bits.
    `seed`: of the batches and of a random start. `init`, `dtype`, `devices`, `chunk`: see `simulate`.
    """
    try:
        method = FLIX(alpha=0.5, even=even).trained_as(LocalTraining(epochs, lr, batch, tolerance, patience))
        method.check()
        method.local_models(problem, np.zeros(1))
    except PolyfedError as error:
        raise PolyfedError(str(error).replace("flix: ", "local_models: ").replace(" plm_", " ")) from None
    training = method.local_training
    identity = bank_identity(problem, training, init, seed, dtype)
    place = (cache_folder() / "local-models" if folder is None else Path(folder)) / bank_digest(identity)
    with precision(dtype):
        start = jax.tree.map(np.asarray, jax.device_get(problem.init(init, seed)))
    if not (place / CLIENTS).exists():  # what is written last
        if hosts.count() > 1:
            raise PolyfedError(f"{place}: no bank of local models here; one process makes it, then several may read it")
        check_folder(place)
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            if not (place / MODELS).exists():
                Making(problem, training, start, seed, dtype, devices, chunk).run(place, identity, progress)
            if not (place / CLIENTS).exists():
                made = LocalModelBank(place, identity, training, start)
                write_csv(place / CLIENTS, made.report.to_dict("records"))
    bank = LocalModelBank(place, identity, training, start)
    if len(bank.far):
        worst = int(bank.far[np.argmax(bank.grad_norms[bank.far])])
        log.warning(
            "%s: %d of %d local models are far from stationary; the largest gradient norm is %.2g, of client '%s' "
            "(%.2g at the start)",
            place,
            len(bank.far),
            len(bank),
            bank.grad_norms[worst],
            bank.clients[worst],
            bank.start_norms[worst],
        )
    return bank


def bank_of(
    problem: Problem,
    method: Algorithm,
    given: LocalModels,
    *,
    init: Init,
    dtype: DType,
    devices: Devices | None = None,
    chunk: int | None = None,
    progress: MakingProgress | None = None,
) -> LocalModelBank | None:
    """The bank that a resolved method reads, made if need be; None where none is given, or it mixes nothing in."""
    if given is None or not isinstance(method, MixtureMethod) or not method.plm:
        return None
    training = method.local_training
    if isinstance(given, LocalModelBank):
        given.refuse_other(problem, training, init, dtype)
        return given
    known, key = problem.traced, ("bank", str(given), json.dumps(bank_identity(problem, training, init, 0, dtype)))
    if key not in known:
        options: dict[str, Any] = {"init": init, "dtype": dtype, "devices": devices, "chunk": chunk}
        known[key] = local_models(problem, given, **vars(training), **options, progress=progress)
    return known[key]


def local_models_diverge(problem: Problem, method: Algorithm, run: Mapping[str, Any]) -> bool:
    """Whether a method cannot start, as the local models that it mixes in diverge; `run`: arguments of `simulate`.

    Local models that converge are made on the way, if they are not there yet.
    """
    if run.get("local_models") is None or not isinstance(method, MixtureMethod) or method.resolve is None:
        return False
    where = {name: run.get(name) for name in ("init", "devices", "chunk")}
    dtype: DType = run.get("dtype", "float32")
    try:
        bank_of(problem, method.resolve(problem), run["local_models"], dtype=dtype, **where)
    except LocalModelsDiverged:
        return True
    return False


class LocalModelsDiverged(PolyfedError):
    """The training of a client's local model was not finite."""


class Making:
    """The program that trains a block of clients, and the loop over blocks."""

    def __init__(
        self,
        problem: Problem,
        training: LocalTraining,
        start: Tree,
        seed: int,
        dtype: DType,
        devices: Devices | None,
        chunk: int | None,
    ) -> None:
        self.problem, self.start = problem, start
        self.dtype: DType = dtype
        self.layout = layout(len(problem), devices)
        with precision(dtype):
            real = jnp.result_type(float)
            self.training = jax.tree.map(lambda leaf: np.asarray(leaf, real), training)
            method = jax.tree.map(np.asarray, Local(local_epochs=training.epochs or 1, batch=training.batch))
            data, splits = data_on(problem, self.layout, seed, in_blocks=False)
            everybody = sampling(1.0, len(problem))
            self.programs = Programs(problem, method, self.layout, everybody, chunk, data, splits)
            self.feed = Feed(self.programs, dtype)
        self.slots = self.programs.round.chunk

    def run(self, folder: Path, identity: JsonObject, progress: MakingProgress | None) -> None:
        """Train all clients that are not done, the largest first: those of a block then have like sizes."""
        clients, sizes = self.problem.federation.clients, self.problem.federation.train.sizes
        order = np.argsort(-sizes, kind="stable").astype(np.int32)
        with _unfinished(folder, identity, self.start, clients) as (file, done, spent):
            blocks = self._blocks(order[~done[order]])
            fresh: list[np.ndarray] = []
            marked = time.perf_counter()
            for place, block in enumerate(blocks):
                begun, compiling = time.perf_counter(), self.programs.compile_seconds
                made = self._trained(block, blocks[place + 1] if place + 1 < len(blocks) else None)
                seconds = time.perf_counter() - begun - (self.programs.compile_seconds - compiling)
                once, first = np.unique(block.T.reshape(-1), return_index=True)
                self._write(file, once, jax.tree.map(lambda leaf, first=first: leaf[first], made), seconds)
                spent += seconds
                fresh.append(once)
                if time.perf_counter() - marked > SYNC or place + 1 == len(blocks):
                    file.sync()
                    for client in np.concatenate(fresh):
                        done[client] = True
                        file.write("done", np.ones(1, bool), int(client))
                    file.sync()
                    fresh, marked = [], time.perf_counter()
                count = int(done.sum()) + sum(map(len, fresh))
                log.info("pure local models: %d of %d clients, %.1f s", count, len(clients), spent)
                if progress is not None:
                    progress(count, len(clients), spent)
        os.replace(folder / UNFINISHED, folder / MODELS)

    def _blocks(self, clients: np.ndarray) -> list[np.ndarray]:
        """(devices, slots) clients at a time; devices take them in turn, and the last block repeats its last client."""
        step = self.layout.devices * self.slots
        parts = (clients[first : first + step] for first in range(0, len(clients), step))
        return [np.pad(part, (0, step - len(part)), "edge").reshape(self.slots, -1).T for part in parts]

    def _trained(self, block: np.ndarray, following: np.ndarray | None) -> _Made:
        """What the clients of a block come to: an entry for each, slot by slot."""
        with precision(self.dtype):
            fed = self.feed.of(block)
            arguments = (self.programs.everywhere(self.training), self.programs.everywhere(self.start), fed.clients)
            specs = (SAME, SAME, BY_CLIENT, laid_out(fed.data))
            name = ("local models", self.programs.round.exact)
            program = self.programs.compiled(name, self._everyone, specs, BY_CLIENT, (*arguments, fed.data))
            made = program(*arguments, fed.data)
            if following is not None:
                self.feed.begin(following)

            def in_turn(leaf: jax.Array) -> np.ndarray:
                by_device = np.asarray(leaf).reshape(*block.shape, *leaf.shape[1:])
                return by_device.swapaxes(0, 1).reshape(leaf.shape)

            return jax.tree.map(in_turn, made)

    def _everyone(self, training: LocalTraining, start: Tree, clients: jax.Array, data: Data) -> _Made:
        shared = randomness.purpose_key(data.seed, Purpose.PREPARE)

        def of_client(client: jax.Array, _: None) -> _Made:
            f = self.programs.round.exact.objective(data, client, 0)
            key = randomness.client_key(shared, data.client_ids[client])
            return _Made(pure_local_model(training, start, f, key), gradient_norm(f, start))

        return over_clients(of_client, clients, self.slots, None)

    def _write(self, file: TensorFile, clients: np.ndarray, made: _Made, seconds: float) -> None:
        broken = [
            place
            for place in range(len(clients))
            if not all(np.isfinite(leaf[place]).all() for leaf in jax.tree.leaves(made))
        ]
        if broken:
            name = self.problem.federation.clients[int(clients[broken[0]])]
            raise LocalModelsDiverged(
                f"the local model of client '{name}' is not finite: its training diverged; a smaller lr may help"
            )
        arrays = named({"params": made.model.params}) | {
            "grad_norm": made.model.grad_norm,
            "start_norm": made.start_norm,
            "epochs": made.model.epochs,
            "seconds": np.full(len(clients), seconds / len(clients)),
        }
        for place, client in enumerate(clients.tolist()):
            for array, values in arrays.items():
                file.write(array, values[place : place + 1], client)


@contextmanager
def _unfinished(folder: Path, identity: JsonObject, start: Tree, names: Sequence[str]) -> Iterator[_Unfinished]:
    """The bank that is being made in `folder`, from the beginning or from where an earlier making left off."""
    path, count = folder / UNFINISHED, len(names)
    kinds = {name: ((count, *leaf.shape), leaf.dtype) for name, leaf in named({"params": start}).items()}
    real = next(iter(kinds.values()))[1]
    kinds |= dict.fromkeys(("grad_norm", "start_norm"), ((count,), real))
    kinds |= {"epochs": ((count,), np.int32), "seconds": ((count,), np.float64), "done": ((count,), bool)}
    if path.exists():
        refuse_other_bank(folder, json.loads((folder / ABOUT).read_text())["identity"], identity)
    else:
        about = {"identity": identity, "clients": list(names)}
        write_text(folder / ABOUT, json.dumps(about, indent=1) + "\n")
        blank = path.with_name(f".{path.name}.part")
        TensorFile(blank, kinds).close()
        os.replace(blank, path)
    with safe_open(path, framework="np") as file:
        done, seconds = file.get_tensor("done"), file.get_tensor("seconds")
    with TensorFile(path, kinds, again=True) as file:
        yield _Unfinished(file, done, float(np.sum(seconds[done])))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While this is held, no other process makes this bank; one that also wants it waits, and then finds it made."""
    try:
        import fcntl
    except ImportError:  # no locks here
        yield
        return
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
