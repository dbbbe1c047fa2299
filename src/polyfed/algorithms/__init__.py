"""Algorithms, one file per method. `REGISTRY` maps a config's `algorithm.name` to its class.

contract.py     what an algorithm says: seven functions, and at most six hooks
field_types.py  what the types of its hyper-parameters say
shared/         what several algorithms share
"""

from typing import TYPE_CHECKING, NoReturn

from polyfed.algorithms.apfl import APFL
from polyfed.algorithms.contract import REGISTRY, Algorithm, Total, Upload, algorithm, get_algorithm
from polyfed.algorithms.dcgd import DCGD
from polyfed.algorithms.diana import DIANA
from polyfed.algorithms.ditto import Ditto
from polyfed.algorithms.fedavg import FedAvg
from polyfed.algorithms.fedbc import FedBC
from polyfed.algorithms.fedprox import FedProx
from polyfed.algorithms.flix import FLIX
from polyfed.algorithms.fomaml import FOMAML
from polyfed.algorithms.l2gd import L2GD
from polyfed.algorithms.local import Local
from polyfed.algorithms.localsgd import LocalSGD
from polyfed.algorithms.minibatchsgd import MinibatchSGD
from polyfed.algorithms.perfedavg import PerFedAvg
from polyfed.algorithms.perfedbc import PerFedBC
from polyfed.algorithms.pfedme import PFedMe
from polyfed.algorithms.plsgd import PLSGD
from polyfed.algorithms.qfedavg import QFedAvg
from polyfed.algorithms.reptile import Reptile
from polyfed.algorithms.scafflix import Scafflix
from polyfed.algorithms.scaffnew import Scaffnew
from polyfed.algorithms.scaffold import Scaffold
from polyfed.core.errors import suggestion

__all__ = [
    "APFL",
    "DCGD",
    "DIANA",
    "FLIX",
    "FOMAML",
    "L2GD",
    "PLSGD",
    "REGISTRY",
    "Algorithm",
    "Ditto",
    "FedAvg",
    "FedBC",
    "FedProx",
    "Local",
    "LocalSGD",
    "MinibatchSGD",
    "PFedMe",
    "PerFedAvg",
    "PerFedBC",
    "QFedAvg",
    "Reptile",
    "Scafflix",
    "Scaffnew",
    "Scaffold",
    "Total",
    "Upload",
    "algorithm",
    "get_algorithm",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(f"module 'polyfed.algorithms' has no attribute '{name}'{suggestion(name, __all__)}")
