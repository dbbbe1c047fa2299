"""Data: federations, partitions, and the sources that a config or `load` can name.

federation.py  Federation and Split          arrays.py, tables.py, folder.py  own data
partition.py   sharing rows out over clients  storage.py                       the saved file
power_law.py   FedBC's partition              summary.py                       sizes, skew and shift
synthetic.py, quadratics.py, sines.py, digits.py                               embedded sources
published.py, libsvm.py                                                        published files in the data folder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyfed.data.digits import digits
from polyfed.data.federation import Federation, Split
from polyfed.data.libsvm import libsvm
from polyfed.data.options import check_options, choice, option_names
from polyfed.data.partition import partition
from polyfed.data.power_law import fedbc_classes
from polyfed.data.quadratics import quadratics
from polyfed.data.sines import sines
from polyfed.data.synthetic import synthetic

__all__ = [
    "Federation",
    "Split",
    "digits",
    "fedbc_classes",
    "libsvm",
    "load",
    "partition",
    "quadratics",
    "sines",
    "sources",
    "synthetic",
]


def sources() -> dict[str, tuple[str, Callable[..., Federation]]]:
    """Every source by name: (what it is, the function that makes it)."""
    return {
        "synthetic": ("synthetic(alpha, beta) of Li et al.: clients' models and inputs drift apart", synthetic),
        "quadratics": ("quadratics with chosen spectra and optima, as least squares", quadratics),
        "sines": ("the sine regression tasks of FLIX: groups of clients that share a function", sines),
        "digits": ("scikit-learn's 8 x 8 digits, shared out by any partition", digits),
        "libsvm": ("a LIBSVM file (mushrooms, a6a, w8a, ... or your own), shared out by any partition", libsvm),
        "csv": ("a CSV file with a client column", Federation.from_csv),
        "parquet": ("a Parquet file with a client column", Federation.from_parquet),
        "folder": ("a folder with one CSV, Parquet or npz file per client", Federation.from_folder),
        "federation": ("a federation that was saved to a file", Federation.load),
    }


def load(name: str, /, **options: Any) -> Federation:
    """The federation of a named source; an unknown name or option is refused with the nearest known one."""
    function = sources()[choice("data source", name, sources())][1]
    known, required = option_names(function)
    if function in (digits, libsvm):  # their further options depend on the partition, and they check them themselves
        known |= options.keys()
    check_options(f"data source {name!r}", options, known, required)
    return function(**options)
