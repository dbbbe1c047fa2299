"""One picture of a federation: who has which labels, and how many rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.data.federation import Federation
from polyfed.data.option_checks import PathLike
from polyfed.data.split import PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

FORMATS = ("svg", "png", "pdf")
MOST_BUBBLES = 40
"""Up to this many clients, a label is a circle whose area shows the rows; with more, labels are a map of shares."""
MOST_CLIENTS = 100
"""Up to this many clients, all are drawn; with more, the sizes of all and the labels of a sample of this many."""
MOST_NAMES = 20
"""Up to this many clients, their names are written."""
FEW_LABELS = 30
"""Up to this many labels, all are drawn, in the size of the other text."""
SHADES = {"train": "#0072B2", "validation": "#E69F00", "test": "#56B4E9"}
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
GREY = "#555555"
STYLE: dict[RcKeyType, object] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.labelcolor": "#222222",
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.hashsalt": "polyfed",
}


def picture(federation: Federation, path: PathLike, title: str | None = None) -> Path:
    """Draw a federation to an SVG, PNG or PDF file: rows per client above, their labels below."""
    matplotlib = extra_package("matplotlib", "figures", "a picture")
    target = Path(path)
    form = target.suffix.lower().lstrip(".")
    if form not in FORMATS:
        raise PolyfedError(f"{target}: a picture ends in .svg, .png or .pdf, found {target.suffix or 'no ending'!r}")
    if not target.parent.is_dir():
        raise PolyfedError(f"{target.parent}: no such folder to draw the picture in")
    part = target.with_name(f".{target.name}.part")
    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context(STYLE):
        try:
            figure(federation, title).savefig(part, format=form, metadata=metadata[form])
            os.replace(part, target)
        except OSError as error:
            raise PolyfedError(f"{target}: cannot be written ({error.strerror})") from None
        finally:
            part.unlink(missing_ok=True)
    return target


def figure(federation: Federation, title: str | None = None) -> Figure:
    """The picture as a matplotlib figure."""
    make_figure: type[Figure] = extra_package("matplotlib.figure", "figures", "a picture").Figure
    sizes = np.stack([federation.split(part).sizes for part in PARTS])
    counts, names = label_counts(federation)
    order, how = _order(sizes.sum(axis=0), counts)
    everybody = len(order) <= MOST_CLIENTS
    height = 0.0 if counts is None else min(8.0, max(1.6, len(names) * (0.2 if len(names) <= FEW_LABELS else 0.115)))
    drawn = make_figure(figsize=(9.0, 2.5 + height), layout="constrained")
    drawn.suptitle(title or _title(federation), x=0.01, ha="left", fontsize=11, fontweight="bold")
    if counts is None:
        axis = drawn.subplots()
        _sizes(axis, sizes[:, order], everybody)
        axis.set_xlabel(f"clients, {how}")
        return drawn
    axes = drawn.subplots(2, 2, height_ratios=[1.5, height], width_ratios=[8, 1.1])
    axes[0, 1].set_visible(False)
    _sizes(axes[0, 0], sizes[:, order], everybody)
    shown = order if everybody else order[np.linspace(0, len(order) - 1, MOST_CLIENTS).astype(int)]
    if len(shown) <= MOST_BUBBLES and len(names) <= FEW_LABELS:
        _bubbles(axes[1, 0], counts[shown], names)
    else:
        _map(drawn, axes[1, 0], counts[shown], names)
    axes[1, 0].set_xlabel(f"clients, {how}" if everybody else f"{len(shown)} of these {len(order):,} clients, {how}")
    if len(shown) <= MOST_NAMES:
        names = [federation.clients[client] for client in shown]
        turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 6 else {}
        axes[1, 0].set_xticks(np.arange(len(shown)), names, fontsize=8, **turned)
    if everybody:
        axes[0, 0].tick_params(axis="x", length=0, labelbottom=False)
    _totals(axes[1, 1], counts.sum(axis=0))
    return drawn


def _order(sizes: np.ndarray, counts: np.ndarray | None) -> tuple[np.ndarray, str]:
    """Clients by size; by their commonest labels where they all have about the same number of rows."""
    if counts is None or sizes.max() > 1.5 * sizes.min():
        return np.argsort(-sizes, kind="stable"), "largest first"
    first = np.argsort(-counts, axis=1, kind="stable")[:, :2]
    pair = np.sort(first, axis=1)
    return np.lexsort((first[:, 0], pair[:, -1], pair[:, 0])), "by their commonest labels"


def label_counts(federation: Federation) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """(rows of each client with each label over all its splits, the labels' names); None where there are no classes."""
    parts = [federation.split(part) for part in PARTS]
    if parts[0].y.dtype.kind not in "iu":
        return None, ()
    y = np.concatenate([part.y if part.y.ndim == 2 else part.y[:, None] for part in parts])
    owner = np.concatenate([np.repeat(np.arange(len(federation)), part.sizes) for part in parts])
    if federation.classes is None:
        values, codes = np.unique(y, return_inverse=True)
        names: tuple[str, ...] = tuple(f"{value:+d}" for value in values.tolist())
    else:
        codes = y
        names = federation.label_names or tuple(map(str, range(federation.classes)))
    cells = owner[:, None] * len(names) + codes.reshape(y.shape)
    counts = np.bincount(cells.ravel(), minlength=len(federation) * len(names)).reshape(len(federation), len(names))
    if len(names) > FEW_LABELS:  # no room for labels that nobody has
        seen = np.flatnonzero(counts.any(axis=0))
        counts, names = counts[:, seen], tuple(names[c] for c in seen)
    return counts, tuple(map(_readable, names))


def _title(federation: Federation) -> str:
    name = federation.source.get("dataset") or federation.source.get("name") or "federation"
    how = federation.source.get("partition")
    total = sum(len(federation.split(part).x) for part in PARTS)
    given = {key: federation.source.get(key) for key in ("k", "concentration", "exponent")}
    told = ", ".join(f"{key} = {value}" for key, value in given.items() if value is not None)
    shared = f", {str(how).replace('_', ' ')}{f' ({told})' if told else ''}" if how else ""
    return f"{str(name).replace('_', ' ')}{shared}: {len(federation):,} clients, {total:,} rows"


def _readable(label: str) -> str:
    return {"\n": "⏎", " ": "␣"}.get(label, label)


def _sizes(axis: Axes, sizes: np.ndarray, bars: bool) -> None:
    """Rows per client, the parts stacked."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    place, base = np.arange(sizes.shape[1]), np.zeros(sizes.shape[1])
    for part, own in zip(PARTS, sizes, strict=True):
        if not own.any():
            continue
        label = f"{part} {own.sum():,}"
        if bars:
            axis.bar(place, own, bottom=base, width=0.82, color=SHADES[part], label=label)
        else:
            axis.fill_between(place, base, base + own, step="mid", color=SHADES[part], label=label, linewidth=0)
        base = base + own
    axis.set_xlim(-0.6, len(place) - 0.4)
    axis.set_ylabel("rows")
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.1, handlelength=1.0)


def _label_axis(axis: Axes, names: tuple[str, ...]) -> None:
    axis.set_yticks(np.arange(len(names)), names, fontsize=9 if len(names) <= FEW_LABELS else 6)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_ylabel("label")


def _bubbles(axis: Axes, counts: np.ndarray, names: tuple[str, ...]) -> None:
    from matplotlib.ticker import MaxNLocator

    client, label = np.nonzero(counts)
    rows = counts[client, label]
    largest = 190 * min(1.0, 24 / max(len(counts), len(names)))
    axis.scatter(client, label, s=largest * rows / rows.max(), color=SHADES["train"], alpha=0.85, linewidth=0)
    _label_axis(axis, names)
    axis.set_xlim(-0.6, len(counts) - 0.4)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axis.grid(color="#eeeeee", linewidth=0.6)
    axis.set_axisbelow(True)


def _map(drawn: Figure, axis: Axes, counts: np.ndarray, names: tuple[str, ...]) -> None:
    import matplotlib
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = matplotlib.colormaps["Blues"].with_extremes(bad="white")
    seen = np.ma.masked_equal(shares.T, 0)
    norm = PowerNorm(0.5, 0, float(shares.max()))
    image = axis.imshow(seen, aspect="auto", cmap=shades, norm=norm, interpolation="nearest")
    _label_axis(axis, names)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    bar = drawn.colorbar(image, ax=axis, location="bottom", shrink=0.4, aspect=30, pad=0.02)
    bar.ax.spines["outline"].set_visible(False)
    bar.ax.tick_params(length=2, labelsize=8)
    bar.set_ticks([level for level in LEVELS if level <= shares.max()])
    bar.ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    bar.set_label("share of a client's rows", fontsize=8)


def _totals(axis: Axes, totals: np.ndarray) -> None:
    """Rows of each label over all clients."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.barh(np.arange(len(totals)), totals, height=0.72, color="#9a9a9a")
    axis.set_ylim(len(totals) - 0.5, -0.5)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(2))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1000:g}k" if v >= 1000 else f"{v:g}"))
    axis.set_xlabel("rows in all")
