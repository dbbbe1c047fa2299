"""One entry point: simulate a federation, or several runs of it, in this process or in several that do the same."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from polyfed.algorithms.contract import REGISTRY, Algorithm, get_algorithm
from polyfed.core.errors import PolyfedError, own_names
from polyfed.core.files import JsonObject
from polyfed.core.lock import locked
from polyfed.core.precision import Compute
from polyfed.data.cautions import cautions, refuse_one_class
from polyfed.engine import hosts
from polyfed.engine.bar import bar
from polyfed.engine.callbacks import Callback
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.devices.layout import Devices
from polyfed.engine.history import HistoryRow
from polyfed.engine.identity import plain_value, run_identity
from polyfed.engine.local_models import LocalModels, MakingProgress
from polyfed.engine.loop import Loop, PlannedRun, RunUnderWay, SweepProgress, interruptible
from polyfed.engine.measure import FineTune
from polyfed.engine.participation import Participation
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.result import Result
from polyfed.engine.robust.attack import Attack
from polyfed.engine.robust.settings import Aggregate, aggregate_settings
from polyfed.engine.simulation import COUNTERS, Simulation
from polyfed.engine.states.in_waves import Store
from polyfed.engine.sweep import batches
from polyfed.problem.problem import DType, Init, Problem

log = logging.getLogger("polyfed")
LOUD = ("one client", "constant target", "scales", "identifier")
"""The cautions about data that a run from Python says; a config's run says all."""
RoundProgress = Callable[[Simulation, HistoryRow | None], None]
"""Called after every stretch of rounds, with the history's new row where there is one."""


@own_names
def simulate(
    problem: Problem,
    algorithm: Algorithm,
    *,
    rounds: int | None = None,
    participation: Participation = 1.0,
    seed: int = 0,
    init: Init = None,
    eval_every: int = 1,
    dtype: DType = "float32",
    compute: Compute | None = None,
    resume: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    devices: Devices | None = None,
    chunk: int | None = None,
    store: Store = "auto",
    eval_clients: int | None = None,
    finetune: FineTune | None = None,
    adapt_on_test: bool = False,
    privacy: Privacy | None = None,
    local_models: LocalModels = None,
    aggregate: Aggregate | str | None = None,
    attack: Attack | None = None,
    progress: RoundProgress | bool | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Train `algorithm` on `problem` for some rounds, every client in this process, or spread over all of them.

    `rounds` must be given. `participation`: 1.0 all clients, a share below 1, a number of clients, or `Bernoulli(q)`.
    `init`: "zeros", "ones", "random" or parameters; by default what the model says (linear models start at zero).
    `eval_every`: rounds between evaluations; the last round is always evaluated.
    `compute`: "bfloat16" computes the model in local training with numbers of 16 bits, forward and backward; weights,
    steps, what travels, losses and metrics stay float32. By default all is in the dtype.
    `checkpoint`: a folder to write checkpoints to, every `checkpoint_every` rounds, on Ctrl-C and at the end.
    `resume`: such a folder, or one of its checkpoints, to go on from, with results that are the same to the last bit.
    `finetune`: also evaluate the global model after each client has fine-tuned it.
    `adapt_on_test`: measure adapted and fine-tuned models after steps on TEST rows, which leaks their labels; for
    reproducing papers that do so. Training, and the models that are kept, do not change.
    `privacy`: clip every upload and add noise to their sum; the history then has the epsilon that was spent.
    `aggregate`: a server that sees single uploads makes one of them by this rule, in place of their mean: `Aggregate`,
    or the name of its rule. `attack`: some clients send something else than their work, for study.
    `store`: where clients' states are kept between rounds: "device", "host" (memory) or "disk" (a file in the
    checkpoint's folder, or among temporary files); by default the first that has room.
    `local_models`: a bank of pure local models (`polyfed.local_models`), or the folder that banks are kept in: a method
    that mixes them in reads those that fit it there, and makes what is missing. It then starts where they started.
    `eval_clients`: evaluate so many clients only, the same sample for any seed (`Simulation.evaluated`), where
    all would take too long; every figure is then one of that sample. Training does not change.
    `callbacks`: objects of `polyfed.Callback`, which are told of the start, of rounds, of evaluations and of the end.
    `progress`: True shows a bar, False none; by default there is one in notebooks. Or a function, called after every
    stretch of rounds.
    `devices`, `chunk`, `store`: no result changes by them beyond rounding.
    """
    check_run(problem, algorithm)  # before the problem is asked for its data
    if rounds is None:
        raise PolyfedError("simulate needs the number of rounds, such as rounds=100")
    refuse_one_class(problem.federation, classifies=problem.loss.name == "logistic")
    _say_cautions(problem)
    run = PlannedRun(
        problem,
        algorithm,
        seed=seed,
        finetune=finetune,
        resume=None if resume is None else Path(resume),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        callbacks=callbacks,
    )
    if callable(progress):
        shown: AbstractContextManager[RoundProgress | None] = nullcontext(progress)
    else:
        shown = bar(f"{algorithm.name}, {len(problem):,} clients", rounds, progress)
    with shown as tell:
        [result] = simulate_all(
            [run],
            rounds=rounds,
            participation=participation,
            init=init,
            eval_every=eval_every,
            dtype=dtype,
            compute=compute,
            checkpoint_every=checkpoint_every,
            devices=devices,
            chunk=chunk,
            store=store,
            eval_clients=eval_clients,
            adapt_on_test=adapt_on_test,
            privacy=privacy,
            local_models=local_models,
            aggregate=aggregate,
            attack=attack,
            progress=None if tell is None else lambda _, simulation, row: tell(simulation, row),
        )
    return result


def simulate_all(
    planned: Sequence[PlannedRun],
    *,
    rounds: int,
    participation: Participation = 1.0,
    init: Init = None,
    eval_every: int = 1,
    dtype: DType = "float32",
    compute: Compute | None = None,
    checkpoint_every: int | None = None,
    devices: Devices | None = None,
    chunk: int | None = None,
    store: Store = "auto",
    eval_clients: int | None = None,
    adapt_on_test: bool = False,
    privacy: Privacy | None = None,
    local_models: LocalModels = None,
    making: MakingProgress | None = None,
    aggregate: Aggregate | str | None = None,
    attack: Attack | None = None,
    progress: SweepProgress | None = None,
    finished: Callable[[int, Result], None] | None = None,
    keep_finished: bool = True,
    keep_states: bool = True,
    measure: bool = True,
) -> list[Result]:
    """What `simulate` gives for each of these runs, to the same numbers but for rounding.

    Runs of one shape (they differ in seeds, real-valued hyper-parameters and rows alone) are one program, a `Sweep`;
    others are run one after another. Ctrl-C ends all of them; those that had not begun are at round 0.
    `making` is told of the progress of local models that have to be made first.
    `finished` is called with the place and the result of every run that came to its end, as soon as it did.
    `keep_finished`: write the last checkpoint of such a run, too, and not only of one that is interrupted.
    `keep_states`: without it, the states of such a run are dropped after the call, and its result is its history.
    `measure`: without it, nothing is evaluated and histories are empty: for callers that score the models themselves.
    A run then counts as diverged only where no client's update was finite.
    """
    for name, value in (("rounds", rounds), ("eval_every", eval_every), ("checkpoint_every", checkpoint_every)):
        low = 0 if name == "rounds" else 1
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            raise PolyfedError(f"{name} must be a whole number, at least {low}, found {value!r}")
    rule = aggregate_settings(aggregate)
    with ExitStack() as locks:
        runs: list[RunUnderWay] = []
        for place, plan in enumerate(planned):
            check_run(plan.problem, plan.algorithm)
            simulation = Simulation(
                plan.problem,
                plan.algorithm,
                participation=participation,
                seed=plan.seed,
                init=init,
                dtype=dtype,
                compute=compute,
                devices=devices,
                chunk=chunk,
                adapt_on_test=adapt_on_test,
                store=store,
                eval_clients=eval_clients,
                privacy=privacy,
                aggregate=rule,
                attack=attack,
                local_models=local_models,
                making=making,
                folder=plan.checkpoint,
            )
            identity: JsonObject = {}
            if plan.resume or plan.checkpoint or simulation.layout.hosts > 1:
                identity = run_identity(
                    plan.problem, simulation.method, participation, plan.seed, init, dtype, simulation.compute
                )
                extra: JsonObject = {"adapt_on_test": adapt_on_test or None, "eval_clients": eval_clients}
                extra["local_models"] = None if simulation.bank is None else simulation.bank.digest
                for name, chosen in (("privacy", privacy), ("aggregate", rule), ("attack", attack)):
                    extra[name] = None if chosen is None else plain_value(chosen)
                identity |= {name: value for name, value in extra.items() if value is not None}
            every = {"rounds": rounds, "eval_every": eval_every, "checkpoint_every": checkpoint_every}
            hosts.refuse_different(identity | every)
            run = RunUnderWay(place, plan, simulation, identity)
            if plan.checkpoint is not None:
                hosts.agreed(partial(_lock, locks, plan.checkpoint))
            if plan.resume is not None:
                run.rows = checkpoints.kept_rows(_resumed(simulation, plan.resume, identity), eval_every, rounds)
            if simulation.round > rounds:
                which = f"{plan.resume}: this checkpoint is of round {simulation.round}"
                raise PolyfedError(f"{which}, beyond the {rounds} asked for")
            if plan.checkpoint is not None:
                # What is newer than the one that it goes on from is damaged, or not there of all runs of a sweep.
                same = plan.resume is not None and plan.checkpoint in (plan.resume, plan.resume.parent)
                checkpoints.clear(plan.checkpoint, after=checkpoints.name_of(simulation.round) if same else "")
            runs.append(run)
        loop = Loop(rounds, eval_every, checkpoint_every, progress, keep_finished, measure)
        results: dict[int, Result] = {}
        with interruptible() as interrupted:
            for places in batches([run.simulation for run in runs], [plan.finetune for plan in planned]):
                loop.drive([runs[place] for place in places], interrupted)
                for run in (runs[place] for place in places):
                    if run.diverged:
                        run.diverged = f"{run.plan.algorithm.name} diverged: {run.diverged}; a smaller lr may help"
                        warnings.warn(run.diverged, RuntimeWarning, stacklevel=3)
                    stopped = run.simulation.round < rounds and not run.diverged
                    results[run.place] = Result(run.simulation, run.rows, run.diverged, stopped)
                    run.callbacks.end(results[run.place])
                    if finished is not None and not stopped:
                        finished(run.place, results[run.place])
                    if keep_states and (run.rows or run.simulation.round):
                        run.simulation.fetch()
                    elif not (keep_states or stopped):
                        run.simulation.drop()
        return [results[place] for place in range(len(runs))]


def _lock(locks: ExitStack, folder: Path) -> None:
    locks.enter_context(locked(folder, 0o700))


def _say_cautions(problem: Problem) -> None:
    """Log what makes results on this data doubtful, once for a problem."""
    if not problem.traced.setdefault("cautions said", False):
        problem.traced["cautions said"] = True
        for caution in cautions(problem.federation):
            if caution.kind in LOUD:
                log.warning("%s", caution)


def check_run(problem: object, algorithm: object) -> None:
    """Refuse what is no problem or no algorithm, and say what was expected."""
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise PolyfedError(f"expected a Problem, such as Problem(federation, models.linear()), found {kind}")
    if isinstance(algorithm, Algorithm):
        return
    if isinstance(algorithm, str):
        cls = get_algorithm(algorithm.lower()).__name__
        raise PolyfedError(f"expected an algorithm, such as algorithms.{cls}(), found the word {algorithm!r}")
    if isinstance(algorithm, type):
        name = algorithm.__name__
        what = f"{name}()" if algorithm in REGISTRY.values() else "algorithms.FedAvg()"
        raise PolyfedError(f"expected an algorithm, such as {what}, found the class {name}")
    kind = type(algorithm).__name__
    raise PolyfedError(f"expected an algorithm, such as algorithms.FedAvg(), found {kind}")


def simulate_whole(problem: Problem, algorithm: Algorithm, **options: Any) -> Result:
    """`simulate` for callers that have no use for a part of a run: Ctrl-C raises KeyboardInterrupt, as usual."""
    result = simulate(problem, algorithm, **options)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def every_whole(planned: Sequence[PlannedRun], finished: Callable[[int, Result], None], **options: Any) -> None:
    """`simulate_all` for callers that read results in `finished` alone: Ctrl-C raises KeyboardInterrupt, as usual."""
    if any(result.interrupted for result in simulate_all(planned, finished=finished, keep_states=False, **options)):
        raise KeyboardInterrupt


def _resumed(simulation: Simulation, folder: Path, identity: JsonObject) -> list[HistoryRow]:
    """Put the simulation where its newest checkpoint left off; return the history up to there."""
    path = checkpoints.latest(folder)
    if path is None:
        raise PolyfedError(f"{folder}: no checkpoint here to resume from")
    state, meta = checkpoints.load(path, simulation.server, simulation.kept_start)
    checkpoints.refuse_other(path, meta["identity"], identity)
    counters = {name: int(meta["counters"][name]) for name in COUNTERS}
    simulation.restore(state, counters, float(meta["seconds"]))
    return list(meta["history"])
