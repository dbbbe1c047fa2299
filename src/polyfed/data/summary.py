"""What a federation looks like: sizes, label skew and feature shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.files import JsonObject
from polyfed.data.split import PARTS, Split, has_labels

if TYPE_CHECKING:
    from polyfed.data.federation import Federation

SHOWN = 20  # clients in the printed table
NAMED = 12  # names of classes in a line


@dataclass(frozen=True)
class FederationSummary:
    """Figures over clients, measured on training rows, except the sizes, which count all; `str()` is the readable form.

    label_skew: mean over clients of the total variation distance 1/2 sum_c |p_i(c) - p(c)| between a client's label
    distribution and that of all rows together: 0 for equal mixtures, near 1 for clients with one rare class each.
    feature_shift: mean over clients of the root mean square over features of (client's mean - overall mean) / overall
    standard deviation. Even identically distributed clients have about 1 / sqrt(rows).
    """

    clients: int
    rows: dict[str, int]
    smallest: int
    median: float
    largest: int
    features: tuple[int, ...]
    classes: int | None
    label_names: tuple[str, ...] | None
    labelled: bool
    label_skew: float | None
    classes_per_client: float | None
    feature_shift: float | None
    table: tuple[JsonObject, ...]

    def to_dicts(self) -> list[JsonObject]:
        """A row per client: its name, sizes, skew, shift and facts."""
        return [dict(row) for row in self.table]

    def __str__(self) -> str:
        parts = ", ".join(f"{count:,} {part}" for part, count in self.rows.items())
        shape = " x ".join(map(str, self.features))
        lines = [
            f"{self.clients:,} clients, {sum(self.rows.values()):,} rows ({parts})",
            f"rows per client: {self.smallest:,} to {self.largest:,}, median {self.median:,g}",
            f"features: {shape}, {self._target()}",
        ]
        if self.label_skew is not None:
            lines.append(f"label skew: {self.label_skew:.3f} (0: equal mixtures, 1: disjoint)")
            lines.append(f"classes per client: {self.classes_per_client:.2f} on average")
        if self.feature_shift is not None:
            lines.append(f"feature shift: {self.feature_shift:.3f} standard deviations")
        return "\n".join([*lines, "", *_table(self.to_dicts())])

    def _target(self) -> str:
        """What is predicted, with the names of the classes."""
        if self.classes is None:
            return "labels -1 and +1" if self.labelled else "regression"
        if self.label_names is None:
            return f"{self.classes} classes"
        names = list(self.label_names)
        listed = ", ".join(names if len(names) <= NAMED else [*names[: NAMED - 1], "...", names[-1]])
        return f"{self.classes} classes ({listed})"


def summarize(federation: Federation) -> FederationSummary:
    """See `FederationSummary`."""
    sizes = {part: federation.split(part).sizes for part in PARTS}
    total = np.sum(list(sizes.values()), axis=0)
    skew, held = _label_skew(federation)
    shift = _feature_shift(federation.train)
    table = []
    for i, name in enumerate(federation.clients):
        row: JsonObject = {"client": name, **{part: int(sizes[part][i]) for part in PARTS}}
        if skew is not None and held is not None:
            row |= {"classes": int(held[i]), "label_skew": float(skew[i])}
        if shift is not None:
            row["feature_shift"] = float(shift[i])
        table.append(row | {key: values[i].item() for key, values in federation.columns.items()})
    return FederationSummary(
        clients=len(federation),
        rows={part: int(sizes[part].sum()) for part in PARTS},
        smallest=int(total.min()),
        median=float(np.median(total)),
        largest=int(total.max()),
        features=federation.feature_shape,
        classes=federation.classes,
        label_names=federation.label_names,
        labelled=has_labels(federation.train.y),
        label_skew=None if skew is None else float(skew.mean()),
        classes_per_client=None if held is None else float(held.mean()),
        feature_shift=None if shift is None else float(shift.mean()),
        table=tuple(table),
    )


def _label_skew(federation: Federation) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(distance of each client's label distribution from the overall one, classes that it has)."""
    train = federation.train
    if not has_labels(train.y):
        return None, None
    present, codes = np.unique(train.y, return_inverse=True)
    owner = np.repeat(np.arange(len(federation)), train.sizes)
    counts = np.bincount(owner * len(present) + codes, minlength=len(federation) * len(present))
    counts = counts.reshape(len(federation), len(present))
    own = counts / counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / counts.sum()
    return 0.5 * np.abs(own - overall).sum(axis=1), (counts > 0).sum(axis=1)


def _feature_shift(train: Split) -> np.ndarray | None:
    """Per client; None for token ids, whose means say nothing. Client by client, so no second copy of the data."""
    if train.x.dtype == np.int32:
        return None
    parts = [train.of(i)[0].reshape(size, -1) for i, size in enumerate(train.sizes)]
    means = np.stack([part.mean(axis=0, dtype=np.float64) for part in parts])
    weights = train.sizes / train.sizes.sum()
    overall = weights @ means
    within = np.stack([part.var(axis=0, dtype=np.float64) for part in parts])
    variance = weights @ (within + (means - overall) ** 2)
    varying = variance > 1e-24 * (1 + overall**2)
    if not varying.any():
        return np.zeros(len(parts))
    return np.sqrt(((means - overall)[:, varying] ** 2 / variance[varying]).mean(axis=1))


def _table(rows: list[JsonObject]) -> list[str]:
    shown = rows[:SHOWN]
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in shown)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join(
            text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return lines if len(shown) == len(rows) else [*lines, f"... and {len(rows) - len(shown):,} more clients"]


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
