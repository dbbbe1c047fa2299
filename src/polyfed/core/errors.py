"""What ends a command early; mostly mistakes, each told in one sentence that says what was found and expected."""

from __future__ import annotations

import errno
import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

USER_ERROR, LOST, INTERRUPTED = 2, 3, 130
"""A command's exit codes: a user's mistake, a process of the run that was lost, Ctrl-C."""


class PolyfedError(ValueError):
    """A mistake in the input. Its message is one sentence; the command line prints it and exits with code 2."""


class Interrupted(Exception):
    """Ctrl-C ended a run; its checkpoint is written."""

    def __init__(self, folder: Path, round: int) -> None:
        super().__init__(f"stopped after round {round}; --resume goes on from there")
        self.folder, self.round = folder, round


class LostProcess(Exception):
    """One of the processes of a run is gone, so the run has stopped."""


def of_the_system(error: Exception) -> str | None:
    """A sentence for what the machine refused: a full disk, a folder that is read-only, no memory; None for others."""
    if isinstance(error, MemoryError):
        return "the memory is used up; fewer clients at a time (run.chunk) or a smaller model take less"
    if isinstance(error, OSError):
        if error.errno is None:
            return None
        where = f"{error.filename}: " if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{where}{'the disk is full' if full else error.strerror or error}"
    text = str(error)
    if "RESOURCE_EXHAUSTED" in text or "std::bad_alloc" in text or "Out of memory" in text:
        return f"the memory is used up ({text.splitlines()[0]}); fewer clients at a time (run.chunk) take less"
    return None


LAMBDA = ("lambda", "lambda_", "lam", "lamda", "lmbda", "lambd")
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "tolerance": ("gamma", "tol"),
    "lr": (
        *("learning_rate", "eta", "step_size", "stepsize", "gamma", "client_lr", "local_lr"),
        *("local_learning_rate", "eta_l", "lr_l", "base_lr"),
    ),
    "server_lr": ("server_learning_rate", "global_lr", "global_learning_rate", "eta_g"),
    "batch": (
        *("batch_size", "batchsize", "minibatch", "mini_batch_size", "b"),
        *("local_batch_size", "train_batch_size", "local_bs", "bs"),
    ),
    "local_epochs": ("epochs", "n_epochs", "num_epochs", "num_local_epochs", "local_ep", "e"),
    "local_steps": ("steps", "n_steps", "num_steps", "tau", "local_iterations", "iterations", "k"),
    "steps": ("epochs", "n_steps", "num_steps", "iterations", "local_steps"),
    "rounds": (
        *("epochs", "n_rounds", "num_rounds", "iterations", "max_iter", "t"),
        *("communication_rounds", "comm_rounds", "global_rounds", "num_server_rounds", "server_rounds"),
    ),
    "clients": (
        *("n_clients", "num_clients", "clients_count", "clients_num", "n_devices", "num_devices"),
        *("num_users", "n_users", "num_partitions"),
    ),
    "seed": ("random_state", "random_seed", "rng", "key"),
    "mu": ("proximal_mu", "prox_mu", "prox", *LAMBDA, "reg"),
    "multiplier": LAMBDA,
    "penalty": (*LAMBDA, "mu"),
    "l2": ("weight_decay", "ridge", *LAMBDA, "reg", "regularization", "l2_reg", "c", "penalty"),
    "participation": (
        *("fraction_fit", "client_fraction", "clients_fraction", "fraction", "sample_rate", "frac"),
        *("clients_per_round", "num_clients_per_round", "join_ratio", "min_fit_clients", "cohort_size", "c"),
    ),
    "eval_every": ("eval_interval", "evaluate_every", "test_every", "eval_gap", "eval_freq", "evaluation_frequency"),
    "progress": ("verbose",),
    "devices": ("device", "gpu", "n_jobs", "num_gpus"),
    "compute": ("precision", "amp"),
    "hidden": ("hidden_layer_sizes", "hidden_sizes", "hidden_layers", "layers", "hidden_dims", "units"),
    "model": ("network", "net", "module", "architecture"),
    "loss": ("criterion", "loss_fn", "loss_function"),
    "client": ("site", "group", "groups", "group_by", "by", "client_col", "client_column", "client_id"),
    "target": ("label", "labels", "y", "label_col", "label_column", "target_col", "target_column"),
    "concentration": ("alpha", "dirichlet_alpha", "beta"),
    "features": ("dim", "n_features", "num_features", "input_dim"),
    "alpha": ("mixing_weight", "mixture"),
    "validation": ("validation_split", "val", "val_size"),
    "test": ("test_size", "test_split"),
    "p": ("prob", "probability"),
    "auc": ("roc_auc", "auroc", "roc_auc_score"),
    "squared_error": ("mse", "mean_squared_error"),
    "log_loss": ("cross_entropy", "logloss", "nll"),
    "run": ("train", "fit", "simulate"),
    "predict": ("score", "infer", "inference", "apply"),
    "report": ("evaluate", "eval", "results"),
    "deploy": ("serve",),
    "algorithms": ("methods",),
    "site": ("client", "node", "supernode"),
    "server": ("superlink",),
    "budget": ("n_trials", "trials", "n_iter", "max_evals"),
    "out": ("output", "output_dir", "outdir", "save_dir"),
    "sites": ("clients", "n_clients", "num_clients", "nodes", "n_sites", "num_sites"),
    "simulate": ("run", "train", "fit"),
    "federation": ("dataset", "data", "fed_data"),
    "FedAvg": ("fedadam", "fedyogi", "fedadagrad", "fedavgm", "fedopt", "fedsgd"),
    "Local": ("localonly", "standalone", "separate"),
    "Scaffnew": ("proxskip",),
    "LocalSGD": ("localgd",),
}
"""Names of ours, and what other libraries and papers call the same thing."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error about the unknown name `word`: the closest known name, or else all of them.

    A name from elsewhere comes before one that is spelt alike, in small letters or large ones.
    """
    known = sorted(known)
    meant = closest(word, known)
    return f"; known: {', '.join(known)}" if meant is None else f"; did you mean '{meant}'?"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` most likely means; None if it is like none."""
    spelt = {name.lower(): name for name in sorted(known)}
    foreign = [ours for ours, theirs in ELSEWHERE.items() if word.lower() in theirs]
    for ours in foreign:
        if ours in spelt.values():
            return ours
    # A word whose name of ours is not known here hardly means one that is spelt a little like it.
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.8 if foreign else 0.6)
    return spelt[close[0]] if close else None


def own_names(function: Callable[P, R]) -> Callable[P, R]:
    """A public function, or a class's `__init__`, that answers a name from elsewhere with its own.

    Not one that hands further names on: which of them are known is for others to say.
    """
    parameters = inspect.signature(function).parameters
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values()), function.__qualname__
    known = frozenset(parameters) - {"self", "cls"}
    title = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def called(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in known:
                raise PolyfedError(f"{title} has no argument '{name}'{suggestion(name, known)}")
        return function(*args, **options)

    return called


def settings_with_own_names(kind: C) -> C:
    """A dataclass that does so."""
    kind.__init__ = own_names(kind.__init__)  # pyright: ignore[reportAttributeAccessIssue]
    return kind
