"""Algorithms, one file per paper. `REGISTRY` maps a config's `algorithm.name` to its class."""

from polyfed.algorithms.base import REGISTRY, Algorithm, Total, Upload, algorithm, get_algorithm
from polyfed.algorithms.dcgd import DCGD
from polyfed.algorithms.diana import DIANA
from polyfed.algorithms.fedavg import FedAvg
from polyfed.algorithms.fedprox import FedProx
from polyfed.algorithms.flix import FLIX
from polyfed.algorithms.local import Local
from polyfed.algorithms.scafflix import Scafflix
from polyfed.algorithms.scaffnew import Scaffnew
from polyfed.algorithms.scaffold import Scaffold

__all__ = [
    "DCGD",
    "DIANA",
    "FLIX",
    "REGISTRY",
    "Algorithm",
    "FedAvg",
    "FedProx",
    "Local",
    "Scafflix",
    "Scaffnew",
    "Scaffold",
    "Total",
    "Upload",
    "algorithm",
    "get_algorithm",
]
