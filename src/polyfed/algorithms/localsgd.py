"""Local SGD with an inner and an outer stepsize."""

from __future__ import annotations

from typing import Literal

from polyfed.algorithms.contract import algorithm
from polyfed.algorithms.fedavg import FedAvg
from polyfed.core.schedules import Schedule


@algorithm("localsgd")
class LocalSGD(FedAvg):
    """Local SGD: SGD steps at the clients with an inner stepsize, one at the server with an outer one.

    The extreme of PLSGD without a personal part (alpha = 0); federated averaging in which all clients count the same.
    """

    lr: Schedule = 0.1
    """eta, the inner stepsize"""
    weighting: Literal["size", "uniform"] = "uniform"
    """the weight of a client in the mean: n_i, or one for all as in PLSGD's paper"""
    server_lr: float = 1.0
    """beta, the outer stepsize: the server goes beta times the mean move"""
