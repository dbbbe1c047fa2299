"""Algorithms, one file per paper. `REGISTRY` maps a config's `algorithm.name` to its class."""

from polyfed.algorithms.base import REGISTRY, Algorithm, Total, Upload, algorithm, get_algorithm
from polyfed.algorithms.fedavg import FedAvg
from polyfed.algorithms.fedprox import FedProx
from polyfed.algorithms.local import Local
from polyfed.algorithms.scaffold import Scaffold

__all__ = [
    "REGISTRY",
    "Algorithm",
    "FedAvg",
    "FedProx",
    "Local",
    "Scaffold",
    "Total",
    "Upload",
    "algorithm",
    "get_algorithm",
]
