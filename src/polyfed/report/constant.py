"""Whether a method is worth anything: its scores beside those of predicting the same for every row of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyfed.report.numbers import told_apart

if TYPE_CHECKING:
    from polyfed.report.methods import Method

PROPER = ("loss", "log_loss", "squared_error")
"""Scores that only an honest prediction makes best, unlike a ranking's AUC: a constant's is always one half."""
SLACK = 1e-6  # a relative difference that is rounding


def shortfall(method: Method, model: str) -> str:
    """In what a model is worse than the constant predictor, with both figures; empty where it is worse in nothing.

    The shown metric counts, the loss on validation rows (else on those that are reported), and that the run itself
    found the training loss of what it deploys above a constant prediction's.
    """
    task = method.task
    mean, constant = method.mean(model), method.mean("constant")
    if mean is not None and constant is not None and task.gain(mean, constant) < 0:
        return _words(f"mean {task.name}", mean, constant, task.is_share)
    loss = None if _weighs_classes(method) else _loss(method, model)
    if loss is not None and loss[1] > loss[2] + SLACK * abs(loss[2]):
        return _words(*loss, is_share=False)
    if model == method.deployed and _warned(method):
        return "a training loss above that of a constant prediction"
    return ""


def _loss(method: Method, model: str) -> tuple[str, float, float] | None:
    """The first proper score that model and constant predictor both have: its name and the two means."""
    for split in dict.fromkeys(("validation", method.task.split)):
        for name in PROPER:
            mean, constant = method.mean(model, split, name), method.mean("constant", split, name)
            if mean is not None and constant is not None:
                return f"mean {split} {name.replace('_', ' ')}", mean, constant
    return None


def _words(name: str, mean: float, constant: float, is_share: bool) -> str:
    own, other = told_apart(mean, constant, is_share)
    return f"a {name} of {own}, the constant predictor {other}"


def _weighs_classes(method: Method) -> bool:
    """Where classes are weighed, training aims at another loss than the one that is measured."""
    return any((run.config.get("problem") or {}).get("class_weight") is not None for run in method.runs)


def _warned(method: Method) -> bool:
    return any(run.summary.get("worse_than_constant", False) for run in method.runs)
