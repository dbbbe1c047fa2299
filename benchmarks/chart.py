"""The chart of a run: how many times as long as ours the others' rounds take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.ticker import FuncFormatter

OURS, OUR_COLOR = "polyfed", "#1f5fa8"
COLORS = {"PyTorch": "#8a8f98", "FedJAX": "#c98a2b", "pfl": "#5b9a68", "Flower": "#b05a7a"}
SHORT = {
    "a": "(a) MLP\n100 clients",
    "b": "(b) MLP\n10 of 1,000",
    "c": "(c) CNN\n10 clients",
    "d": "(d) LSTM\n10 clients",
    "e": "(e) softmax\n1,000 clients",
}


def draw(record: dict[str, Any], place: Path) -> None:
    """A group of bars for each work, on a logarithmic axis."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    works = [work for work in record["works"] if work["key"] in SHORT]
    figure, axes = plt.subplots(figsize=(9, 3.6), dpi=150)
    width = 0.8 / len(COLORS)
    for number, (name, color) in enumerate(COLORS.items()):
        left = (number - (len(COLORS) - 1) / 2) * width
        bars = {k + left: times for k, work in enumerate(works) if (times := _times(work, name)) is not None}
        drawn = axes.bar(list(bars), list(bars.values()), width * 0.92, color=color, label=name)
        labels = axes.bar_label(drawn, [_label(times) for times in bars.values()], fontsize=7, padding=2, zorder=3)
        for label in labels:  # over the line at 1, which small bars end at
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    axes.axhline(1, color=OUR_COLOR, linewidth=1.5, label=OURS)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(range(len(works)), [SHORT[work["key"]] for work in works], fontsize=8)
    axes.set_ylabel("time of a round, polyfed's = 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=len(COLORS) + 1, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    figure.tight_layout()
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, metadata={"Software": None})
    plt.close(figure)


def _label(times: float) -> str:
    """Two digits after the point where the first would say too little."""
    return f"{times:.0f}" if times >= 100 else f"{times:.1f}" if times >= 1.05 else f"{times:.2f}"


def _times(work: dict[str, Any], framework: str) -> float | None:
    """The framework's time over ours; None where it did not run the work."""
    ours = work["timings"][0]["seconds"]
    return next((peer["seconds"] / ours for peer in work["timings"] if peer["framework"] == framework), None)
