"""What ends a command early; mostly mistakes, each told in one sentence that says what was found and expected."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

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


ELSEWHERE = {
    "tolerance": ("gamma", "tol"),
    "lr": ("learning_rate", "eta", "step_size", "stepsize", "gamma", "client_lr", "local_lr"),
    "server_lr": ("server_learning_rate", "global_lr", "eta_g"),
    "batch": ("batch_size", "batchsize", "minibatch", "mini_batch_size"),
    "local_epochs": ("epochs", "n_epochs", "num_epochs", "local_ep"),
    "local_steps": ("steps", "n_steps", "num_steps", "tau", "local_iterations", "iterations"),
    "rounds": ("epochs", "n_rounds", "num_rounds", "iterations", "max_iter", "communication_rounds"),
    "clients": ("n_clients", "num_clients", "clients_count", "n_devices", "num_devices"),
    "seed": ("random_state", "random_seed"),
    "mu": ("proximal_mu", "prox", "lambda", "lambda_", "lam", "reg"),
    "multiplier": ("lambda", "lambda_", "lam"),
    "penalty": ("lambda", "lambda_", "lam", "mu"),
    "l2": ("weight_decay", "ridge", "lambda", "lambda_", "reg", "C", "penalty"),
    "participation": ("fraction_fit", "client_fraction", "fraction", "sample_rate", "frac"),
    "hidden": ("hidden_layer_sizes", "hidden_sizes", "layers", "hidden_dims"),
    "validation": ("validation_split", "val", "val_size"),
    "test": ("test_size", "test_split"),
    "p": ("prob", "probability"),
    "auc": ("roc_auc", "auroc", "roc_auc_score"),
    "squared_error": ("mse", "mean_squared_error"),
    "log_loss": ("cross_entropy", "logloss", "nll"),
}
"""Names of ours, and what other libraries and papers call the same thing."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error about the unknown name `word`: the closest known name, or else all of them.

    A name from elsewhere comes before one that is spelt alike, in small letters or large ones.
    """
    known = sorted(known)
    for ours, theirs in ELSEWHERE.items():
        if ours in known and word.lower() in theirs:
            return f"; did you mean '{ours}'?"
    spelt = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spelt, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{spelt[close[0]]}'?"
    return f"; known: {', '.join(known)}"
