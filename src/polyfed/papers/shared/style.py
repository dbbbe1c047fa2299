"""The house style of figures: small multiples, log axes, colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import matplotlib
import matplotlib.colors
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A", "#7F7F7F")
"""Okabe and Ito's palette, without its yellow, which is too pale for a line; then a brown and a grey."""
BASELINE, METHOD = "--", "-"
"""The baseline (GD) is dashed and the method solid, as in Scafflix Fig. 1."""
LINES = (METHOD, BASELINE, ":", "-.")
"""Members of a family of one colour."""
WIDTH, HEIGHT = 3.1, 2.5
POINTS = 400
"""A curve is drawn with at most so many points."""
V = TypeVar("V", bound=Hashable)
RC: dict[RcKeyType, object] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "axes.formatter.use_mathtext": True,
}


@dataclass(frozen=True)
class Curve:
    """A line of a panel; curves of the same label have one entry in the legend."""

    label: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    colour: str
    line: str = METHOD
    marker: str = ""


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Sequence[Curve]
    y_label: str | None = None
    x_label: str | None = None
    """where it differs from the figure's"""


def colours(values: Sequence[V]) -> dict[V, str]:
    """One colour per value, for a few values without an order."""
    return {value: COLOURS[i % len(COLOURS)] for i, value in enumerate(values)}


def looks(families: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """A colour and a line for every label (label -> family). With too few colours, a family shares one."""
    if len(families) <= len(COLOURS):
        return {label: (colour, METHOD) for label, colour in colours(list(families)).items()}
    palette = colours(list(dict.fromkeys(families.values())))
    chosen: dict[str, tuple[str, str]] = {}
    for label, family in families.items():
        before = sum(colour == palette[family] for colour, _ in chosen.values())
        chosen[label] = palette[family], LINES[before % len(LINES)]
    return chosen


def ramp(values: Sequence[V]) -> dict[V, str]:
    """Colours from dark to light for ordered values, such as k."""
    positions = np.linspace(0.0, 0.88, len(values))
    map_ = matplotlib.colormaps["viridis"]
    return {value: matplotlib.colors.to_hex(map_(p)) for value, p in zip(values, positions, strict=True)}


def small_multiples(
    panels: Sequence[Sequence[Panel]],
    *,
    x_label: str,
    log_y: bool = True,
    log_x: bool = False,
    floor: float = 1e-15,
    legend_title: str | None = None,
    legend_outside: bool = False,
) -> Figure:
    """A grid of panels: rows are quantities, columns datasets. A long legend stands outside on the right.

    On a log axis, values under `floor` are rounding errors and are not drawn.
    """
    rows, columns = len(panels), max(map(len, panels))
    labels: dict[str, Line2D] = {}
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=(WIDTH * columns + 1.4, HEIGHT * rows + 0.3), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for i, row in enumerate(panels):
            for j in range(columns):
                if j >= len(row) or not row[j].curves:
                    axes[i, j].set_visible(False)
                    continue
                _fill(axes[i, j], row[j], labels, log_x=log_x, log_y=log_y, floor=floor)
                if i == rows - 1 or row[j].x_label:
                    axes[i, j].set_xlabel(row[j].x_label or x_label)
                if j and row[j].y_label == row[0].y_label:
                    axes[i, j].set_ylabel("")
        _legend(figure, None if legend_outside else axes[0, 0], labels, legend_title)
    return figure


def _fill(axis: Axes, panel: Panel, labels: dict[str, Line2D], *, log_x: bool, log_y: bool, floor: float) -> None:
    for curve in panel.curves:
        x, y = _thinned(np.asarray(curve.x, float), np.asarray(curve.y, float))
        if log_y:
            y = np.where(y > floor, y, np.nan)
        line = axis.plot(x, y, curve.line, color=curve.colour, marker=curve.marker, markersize=4)[0]
        labels.setdefault(curve.label, line)
    axis.set_title(panel.title)
    if panel.y_label:
        axis.set_ylabel(panel.y_label)
    if log_y:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        if high >= 100 * low:  # a shorter range needs the labels between the powers of ten
            axis.yaxis.set_major_locator(LogLocator(numticks=7))
            axis.yaxis.set_minor_formatter(NullFormatter())
    if log_x:
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.margins(x=0.02)


def _legend(figure: Figure, first: Axes | None, labels: Mapping[str, Line2D], title: str | None) -> None:
    if len(labels) < 2:
        return
    if first is not None and len(labels) <= 4:
        first.legend(labels.values(), labels.keys(), title=title)
    else:
        figure.legend(labels.values(), labels.keys(), title=title, loc="outside right center")


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if len(x) <= POINTS:
        return x, y
    places = np.unique(np.linspace(0, len(x) - 1, POINTS).astype(int))
    return x[places], y[places]


@dataclass(frozen=True)
class HeatMap:
    """Numbers by row and column, to be drawn as coloured cells; NaN is grey."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: np.ndarray


def heat_maps(maps: Sequence[HeatMap], *, x_label: str, y_label: str) -> Figure:
    """Heat maps side by side. Colours are scaled within each row, and a red frame marks the row's minimum."""
    with matplotlib.rc_context(RC):
        widths = [0.55 * len(each.columns) + 0.9 for each in maps]
        height = 0.42 * max(len(each.rows) for each in maps) + 1.2
        figure = Figure(figsize=(sum(widths), height), layout="constrained")
        axes = figure.subplots(1, len(maps), squeeze=False, width_ratios=widths)[0]
        for axis, each in zip(axes, maps, strict=True):
            _cells(axis, each)
            axis.set_xlabel(x_label)
        axes[0].set_ylabel(y_label)
    return figure


def _cells(axis: Axes, each: HeatMap) -> None:
    low = np.nanmin(each.values, axis=1, keepdims=True)
    span = np.nanmax(each.values, axis=1, keepdims=True) - low
    shades = (each.values - low) / np.where(span > 0, span, 1)
    colours = matplotlib.colormaps["viridis"].with_extremes(bad="#bbbbbb")
    axis.imshow(np.ma.masked_invalid(shades), cmap=colours, vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(each.values):
        text = f"{value:.2f}" if np.isfinite(value) else ""
        axis.text(j, i, text, ha="center", va="center", fontsize=7, color="black" if shades[i, j] > 0.6 else "white")
    for i, j in enumerate(np.nanargmin(each.values, axis=1)):
        axis.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor="red", linewidth=1.6))
    axis.set_xticks(range(len(each.columns)), each.columns)
    axis.set_yticks(range(len(each.rows)), each.rows)
    axis.set_title(each.title)
    axis.grid(False)
