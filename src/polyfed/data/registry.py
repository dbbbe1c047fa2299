"""Every source by name, for configs and `load`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import check_options, choice, option_names
from polyfed.data.population import Population
from polyfed.data.sources.airlines import airlines
from polyfed.data.sources.cifar import cifar10
from polyfed.data.sources.debtags import debtags
from polyfed.data.sources.digits import digits
from polyfed.data.sources.hugging_face import huggingface
from polyfed.data.sources.leaf import femnist, shakespeare_leaf
from polyfed.data.sources.libsvm import libsvm
from polyfed.data.sources.mnist import emnist, fashion_mnist, mnist, mnist_by_writer
from polyfed.data.sources.quadratics import quadratics
from polyfed.data.sources.shakespeare import shakespeare
from polyfed.data.sources.sines import sines
from polyfed.data.sources.synthetic import synthetic


def sources() -> dict[str, tuple[str, Callable[..., Federation | Population]]]:
    """Every source by name: (what it is, the function that makes it)."""
    return {
        "synthetic": ("synthetic(alpha, beta) of Li et al.: clients' models and inputs drift apart", synthetic),
        "quadratics": ("quadratics with chosen spectra and optima, as least squares", quadratics),
        "sines": ("the sine regression tasks of FLIX: groups of clients that share a function", sines),
        "airlines": ("late flights of 16 airlines: a table with text, dates and missing values", airlines),
        "digits": ("scikit-learn's 8 x 8 digits, shared out by any partition", digits),
        "mnist": ("MNIST's handwritten digits, shared out by any partition", mnist),
        "mnist_by_writer": ("MNIST's digits by the 539 people who wrote them", mnist_by_writer),
        "fashion_mnist": ("Fashion-MNIST's pieces of clothing, shared out by any partition", fashion_mnist),
        "emnist": ("EMNIST's handwritten digits and letters, shared out by any partition", emnist),
        "femnist": ("LEAF's FEMNIST: handwritten digits and letters by the writer", femnist),
        "cifar10": ("CIFAR-10's photographs, shared out by any partition", cifar10),
        "shakespeare": ("the speaking roles of Shakespeare's plays: predict the next character", shakespeare),
        "shakespeare_leaf": ("LEAF's Shakespeare: the same task from its json files", shakespeare_leaf),
        "debtags": ("Debian's packages: the words of a description to its tags, by maintainer", debtags),
        "libsvm": ("a LIBSVM file (mushrooms, a6a, w8a, ... or your own), shared out by any partition", libsvm),
        "csv": ("a CSV file with a client column", Federation.from_csv),
        "parquet": ("a Parquet file with a client column", Federation.from_parquet),
        "folder": ("a folder with one CSV, Parquet or npz file per client", Federation.from_folder),
        "npz": ("an npz file with an array of client names", Federation.from_npz),
        "npy": (
            "a folder with x.npy, y.npy and offsets.npy, of which only the rows in use are read",
            Population.from_npy,
        ),
        "huggingface": ("a Hugging Face dataset with a client column", huggingface),
        "federation": ("a federation that was saved to a file", Federation.load),
    }


def load(name: str, /, **options: object) -> Federation | Population:
    """The federation of a named source; an unknown name or option is refused with the nearest known one."""
    function = sources()[choice("data source", name, sources())][1]
    known, required = option_names(function)
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()):
        known |= options.keys()  # options of the partition, which such a source checks itself
    check_options(f"data source {name!r}", options, known, required)
    return function(**options)


def source_options(name: str) -> set[str]:
    """The options that a source has, by its name."""
    return option_names(sources()[choice("data source", name, sources())][1])[0]


def table_section(path: Path, client: str | None, target: str | None) -> dict[str, object] | None:
    """[data] of a table: a CSV or Parquet file, or a folder with one each; None for any other file."""
    name = path.name.lower()
    endings = {"csv": "csv|tsv|tab|txt", "parquet": "parquet"}
    kind = next((kind for kind, ends in endings.items() if re.search(rf"\.({ends})(\.(gz|xz|bz2))?$", name)), None)
    kind = "folder" if path.is_dir() else kind
    if re.search(r"\.(xlsx?|xlsm|ods|zip)$", name):
        workbook = not name.endswith(".zip")
        what = "a workbook; save its sheet as CSV" if workbook else "an archive; unpack it, or compress with gzip"
        raise PolyfedError(f"{path}: expected a .csv or .parquet file, found {what}")
    if kind is None:
        for option, value in (("--client", client), ("--target", target)):
            if value is not None:
                raise PolyfedError(f"{path}: {option} names a column of a table, expected a .csv or .parquet file")
        return None
    if not path.exists():
        raise PolyfedError(f"{path}: there is no such file or folder")
    needed = {"target": target} if kind == "folder" else {"client": client, "target": target}
    for option, value in needed.items():
        if value is None:
            raise PolyfedError(f"{path}: say which column is the {option}, with --{option}")
    return {"source": kind, "path": str(path), **needed}
