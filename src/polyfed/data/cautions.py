"""Cautions: what in the data makes a result doubtful, each in a sentence that is said before anything runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.leaks import leaks
from polyfed.data.population import Population
from polyfed.data.split import PARTS, has_labels

SAMPLED = 20_000
"""The most training rows that are looked at for a column's values."""
DISTINCT = 20
"""A column of whole numbers that differ in at least so many rows, in all of them, is taken for an identifier."""
NAMED = 3
"""How many clients or columns a sentence names."""
TINY = 20
"""Of a client with fewer rows little can be told."""
BY_CHANCE = 0.05
"""How much better, as a share of the rows, the best of several equal candidates may look by chance."""
LARGE = 30.0
"""A feature with a larger root mean square makes a first step explode: the curvature grows with its square."""
IDENTIFIER = re.compile(r"(^|_)(id|ids|uuid|guid|key|index|idx|number|nr|rowid|row)$")
CERTAIN = re.compile(r"(^|_)(id|ids|uuid|guid|rowid)$")


@dataclass(frozen=True)
class Caution:
    """Something to know before a result is believed: its kind in a word, and a sentence that names what it is about."""

    kind: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def cautions(data: Federation | Population, candidates: int | None = None) -> list[Caution]:
    """What makes results on this data doubtful. `candidates`: how many of them validation rows choose among.

    Of a population, whose rows are read when they are needed, only the sizes and a few clients' targets are known.
    """
    about_sizes = [*_sizes(data), *([] if candidates is None else _choice(data, candidates))]
    if isinstance(data, Population):
        return [*about_sizes, *_sampled_targets(data)]
    return [*_columns(data), *about_sizes, *_labels(data)]  # first what spoils a whole run


def refuse_one_class(data: Federation | Population, classifies: bool = False) -> None:
    """Refuse data in which all rows of all clients have the same class label: there is nothing to tell apart.

    `classifies`: whether the loss takes real targets for labels, too, as the logistic one does.
    """
    if isinstance(data, Population) or not (classifies or has_labels(data.train.y)):
        return
    first = data.train.y[0]
    if all((data.split(part).y == first).all() for part in PARTS):
        label = f"{first:g}" if data.label_names is None else data.label_names[int(first)]
        raise PolyfedError(f"every row of every client has the label {label!r}, expected at least two classes")


def refuse_one_client(data: Federation | Population) -> None:
    """Refuse a federation of one client, which nobody could help to learn."""
    if len(data) == 1:
        raise PolyfedError(
            f"there is one client, {data.clients[0]!r}, which has nobody to learn from; expected at least two (is it "
            "the right client column?), or the algorithm local"
        )


def _listed(names: Sequence[str], count: int | None = None) -> str:
    """The first few of `count` names, by default of these, and how many more there are."""
    more = (len(names) if count is None else count) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _named(data: Federation | Population, clients: np.ndarray) -> str:
    return _listed([data.clients[int(client)] for client in clients[:NAMED]], len(clients))


def _sizes(data: Federation | Population) -> Iterator[Caution]:
    if len(data) == 1:
        yield Caution("one client", f"there is one client, {data.clients[0]}, which has nobody to learn from")
    total = np.sum([data.split(part).sizes for part in PARTS], axis=0)
    small = np.flatnonzero(total < TINY)
    if len(small):
        yield Caution("tiny clients", f"{_clients(len(small))} fewer than {TINY} rows: {_named(data, small)}")


def _choice(data: Federation | Population, candidates: int) -> Iterator[Caution]:
    """The best of K equal candidates looks better than it is by about sqrt(2 ln K) deviations, each 1 / (2 sqrt(n))."""
    rows = data.validation.rows
    if candidates < 2 or not rows:
        return
    gain = math.sqrt(2 * math.log(candidates)) / (2 * math.sqrt(rows))
    if gain > BY_CHANCE:
        yield Caution(
            "few validation rows",
            f"{rows} validation rows choose among {candidates} candidates: of equals, the best looks about "
            f"{100 * gain:.0f} points better by chance alone",
        )


def _sampled_targets(data: Population) -> Iterator[Caution]:
    values = np.unique(data.some_targets)
    if data.classes is None and data.like.y.dtype.kind == "f" and set(values.tolist()) <= {0.0, 1.0}:
        yield Caution(
            "targets",
            "the targets of the first clients are 0.0 and 1.0, taken as real numbers; classes = 2 makes them classes",
        )


def _labels(data: Federation) -> Iterator[Caution]:
    y = data.train.y
    if not has_labels(y):
        if y.size and (y == y[:1]).all():
            yield Caution("constant target", f"every training row has the target {y[0]}, so that nothing is learned")
        return
    values = data.label_values()
    if len(values) == 1:
        yield Caution("one class", "every row of every client has the same label, so that nothing is learned")
        return
    counts = {part: _counts(data, part, values) for part in PARTS}
    own = np.sum(list(counts.values()), axis=0) > 0
    single = np.flatnonzero(own.sum(axis=1) == 1)
    if len(single):
        only = f"{_clients(len(single))} rows of one class only: {_named(data, single)}"
        yield Caution("one-class clients", only)
    for part in PARTS:
        if not data.split(part).rows:
            continue
        lacking = own & (counts[part] == 0)
        if len(values) == 2:
            positive = np.flatnonzero(lacking[:, 1])
            what = "no positive row"
        else:
            positive = np.flatnonzero(lacking.any(axis=1))
            what = "no row of some class of their own"
        if len(positive):
            yield Caution("split", f"{_clients(len(positive))} {what} in {part}: {_named(data, positive)}")


def _counts(data: Federation, part: str, values: np.ndarray) -> np.ndarray:
    """Rows of each label, per client."""
    split = data.split(part)
    owner = np.repeat(np.arange(len(data)), split.sizes)
    codes = np.searchsorted(values, split.y)
    counts = np.bincount(owner * len(values) + codes, minlength=len(data) * len(values))
    return counts.reshape(len(data), len(values))


def _columns(data: Federation) -> Iterator[Caution]:
    """Identifiers, constants and scales, of rows of numbers; pictures and token ids have none."""
    x = data.train.x
    if x.ndim != 2 or x.dtype == np.uint8 or (data.feature_names is None and x.dtype.kind != "f"):
        return
    rows = np.unique(np.linspace(0, len(x) - 1, SAMPLED).astype(np.int64)) if len(x) > SAMPLED else None
    sample = (x if rows is None else x[rows]).astype(np.float64)
    of = "" if rows is None else f" (of {len(sample):,} rows that were looked at)"
    names = data.feature_names or tuple(f"feature {i}" for i in range(x.shape[1]))
    most, spread = np.max(np.abs(sample), axis=0, initial=0.0), np.ptp(sample, axis=0)
    scale = most * np.sqrt(np.mean((sample / np.where(most > 0, most, 1)) ** 2, axis=0))  # squares may overflow
    prepared = data.preparation is not None and not data.preparation.is_plain  # which leaves them out itself
    for column in np.flatnonzero(spread > 0) if not prepared else ():
        why = _identifier(names[column] if data.feature_names else "", sample[:, column])
        if why:
            yield Caution("identifier", f"column {names[column]!r} {why}: leave it out{of}")
    for name in dict.fromkeys(leaks(data, slice(None) if rows is None else rows)):
        yield Caution(
            "leak",
            f"column {name!r} alone predicts the target nearly perfectly: leave it out if it is not known when a "
            f"prediction is needed{of}",
        )
    constant = [names[i] for i in np.flatnonzero(spread == 0)]
    if constant and data.feature_names and not prepared:
        word = "column is" if len(constant) == 1 else "columns are"
        yield Caution("constant columns", f"{len(constant)} {word} the same in every row: {_listed(constant)}{of}")
    large = [i for i in np.argsort(-scale) if scale[i] > LARGE]
    if large:
        there = np.flatnonzero(scale > 0)
        low = there[np.argmin(scale[there])]
        by = "" if data.preparation is None else ", as prepare = true does"
        beside = f", beside {scale[low]:.2g} of {names[low]}" if scale[low] <= LARGE else ""
        yield Caution(
            "scales",
            f"features are on scales of up to {scale[large[0]]:.2g} ({_listed([names[i] for i in large])}){beside}, so "
            f"that the first step may explode: standardize them{by}{of}",
        )


def _identifier(name: str, values: np.ndarray) -> str | None:
    """Why a column looks like an identifier; real measurements differ in every row, too, but are not whole."""
    word = re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).lower().strip("_")
    if CERTAIN.search(word):
        return "is named like an identifier"
    whole = bool((values == np.floor(values)).all())
    distinct = len(np.unique(values))
    if IDENTIFIER.search(word) and whole and 2 * distinct > len(values):
        return "is named like an identifier"
    return "differs in every row, as an identifier does" if whole and distinct == len(values) >= DISTINCT else None


def _clients(count: int) -> str:
    return "1 client has" if count == 1 else f"{count:,} clients have"
