"""Cautions of a run: what refuses to run at all, and a stepsize that ends above the constant predictor."""

from __future__ import annotations

import numpy as np

from polyfed.algorithms import Local
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.local_work import Steps
from polyfed.data import Federation
from polyfed.data.cautions import Caution, refuse_one_class, refuse_one_client
from polyfed.engine.client_metrics import Metrics
from polyfed.problem.problem import Problem
from polyfed.studies.config import Config

WORSE_THAN_CONSTANT = "worse than constant"
"""The kind of caution that a training loss above the constant predictor's gives."""


def refuse_hopeless(config: Config) -> None:
    """Refuse one class, and one client unless every method trains alone, before anything runs."""
    federation = config.problem.federation
    with config.named():
        refuse_one_class(federation, classifies=config.problem.loss.name == "logistic")
        if any(method.algorithm.name != Local.name for method in config.methods):
            refuse_one_client(federation)


def after_run_cautions(
    problem: Problem, algorithm: Algorithm, metrics: Metrics, clients: np.ndarray | None = None
) -> list[Caution]:
    """A stepsize with which the deployed models' mean training loss ends above the constant predictor's.

    `clients` are those that were measured, by default all. Of a population the rows are not read again. Where classes
    are weighed, so are both losses.
    """
    constant = constant_losses(problem)
    if constant is None or "train" not in metrics["personal"]:
        return []
    losses = metrics["personal"]["train"]["loss" if problem.class_weight is None else "weighted_loss"]
    reached = float(np.mean(losses))
    yardstick = float(np.mean(constant if clients is None else constant[clients]))
    if reached <= yardstick * (1 + 1e-6):
        return []
    rate = algorithm.lr if isinstance(algorithm, Steps) else None
    who = f"{algorithm.name} with lr = {rate:g}" if isinstance(rate, int | float) else algorithm.name
    return [
        Caution(
            WORSE_THAN_CONSTANT,
            f"{who} ends with a training loss of {reached:.6g}, above the {yardstick:.6g} of a constant prediction: "
            "take another stepsize, or more rounds",
        )
    ]


def constant_losses(problem: Problem) -> np.ndarray | None:
    """Each client's mean training loss under the best constant prediction of its own training rows.

    The entropy of its class frequencies, with class weights where there are any, or half the variance of its real
    targets; None for a population and for losses of another kind.
    """
    federation = problem.federation
    if not isinstance(federation, Federation) or problem.loss.name not in ("softmax", "logistic", "squared"):
        return None
    targets = [federation.train.of(client)[1] for client in range(len(federation))]
    if problem.loss.name == "squared":
        return np.array([0.5 * np.var(y.astype(np.float64), axis=0).sum() for y in targets])
    return np.array([_entropy(y, _row_weights(problem, y)) for y in targets])


def _row_weights(problem: Problem, labels: np.ndarray) -> np.ndarray:
    if problem.class_weight is None:
        return np.ones(len(labels))
    return problem.task.row_weights(labels, np.asarray(problem.class_weight, np.float64))


def _entropy(labels: np.ndarray, weights: np.ndarray) -> float:
    """The least mean over rows of -w log p: p follows the weights of the classes' rows."""
    _, classes = np.unique(labels, return_inverse=True)
    masses = np.bincount(classes.ravel(), weights)
    masses = masses[masses > 0]
    return float(-(masses * np.log(masses / masses.sum())).sum() / len(labels))
