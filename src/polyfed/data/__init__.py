"""Data: federations, populations, and the sources that a config or `load` can name.

What a run computes on
  federation.py     Federation: every client's rows, in memory
  population.py     Population: clients whose rows are read or made on request
  split.py          Split: the rows of one part; how rows are shared out over train, validation and test
  registry.py       sources and load: every source by name
  partitions.py     partition: labelled arrays, shared out over clients
  schemes.py        the schemes that do it: iid, contiguous, shards, dirichlet, ...
  power_law.py      one more scheme, FedBC's
  summary.py        sizes, label skew and feature shift
  picture.py        who has which labels, as a figure
  cautions.py       what makes results on this data doubtful, in sentences
  arrays.py         own data in memory: checks, one flat copy, labels
  labels.py         targets: classes or real numbers
  names.py, seeds.py, option_checks.py  clients' names, random streams, checks of options

tables/             raw tables: what columns hold, and the preparation that makes features of them
formats/            what reads a file: tables, folders, npz, npy, IDX, a saved federation
sources/            what makes or fetches a dataset: embedded ones, published ones, downloads
"""

from __future__ import annotations

from polyfed.data.federation import Federation
from polyfed.data.partitions import partition
from polyfed.data.picture import picture
from polyfed.data.population import Population
from polyfed.data.power_law import fedbc_classes
from polyfed.data.registry import load, source_options, sources, table_section
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
from polyfed.data.split import Split

__all__ = [
    "Federation",
    "Population",
    "Split",
    "airlines",
    "cifar10",
    "debtags",
    "digits",
    "emnist",
    "fashion_mnist",
    "fedbc_classes",
    "femnist",
    "huggingface",
    "libsvm",
    "load",
    "mnist",
    "mnist_by_writer",
    "partition",
    "picture",
    "quadratics",
    "shakespeare",
    "shakespeare_leaf",
    "sines",
    "source_options",
    "sources",
    "synthetic",
    "table_section",
]
