"""The picture of plain and trusted control variates: `controls_chart.py FILE.csv PICTURE.png`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

METHODS = {
    ("scaffnew", 1.0): "Scaffnew",
    ("scafflix", 0.9): "Scafflix, alpha 0.9",
    ("scafflix", 0.5): "Scafflix, alpha 0.5",
}
METHODS |= {("scaffold", 1.0): "SCAFFOLD"}
COLORS = dict(zip(METHODS, ("#1f5fa8", "#c98a2b", "#5b9a68", "#b05a7a"), strict=True))
LINES = {"always": "-", "never": ":"}
PANELS = [(0.1, "fixed"), (0.1, "random"), (0.03, "fixed"), (0.03, "random")]


def draw(rows: pd.DataFrame, place: Path) -> None:
    """The objective by the round, a panel for each stepsize and kind of step; a run that diverged ends in a cross."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(11, 3.4), dpi=130, sharey=True)
    for axes, (lr, steps) in zip(panels, PANELS, strict=True):
        for (method, alpha), label in METHODS.items():
            for trust, line in LINES.items():
                wanted = (rows.method == method) & (rows.alpha == alpha) & (rows.lr == lr) & (rows.trust == trust)
                run = rows[wanted & (rows.steps == steps) & (rows["round"] > 0) & rows.objective.notna()]
                color = COLORS[method, alpha]
                name = f"{label}, {'trusted' if trust == 'always' else 'plain'}"
                axes.plot(run["round"], run.objective.clip(upper=5), line, color=color, linewidth=1.4, label=name)
                if len(run) and (run.ended == "diverged").any():
                    last = run.tail(1)
                    axes.plot(last["round"], last.objective.clip(upper=5), "x", color=color)
        axes.set_yscale("log")
        axes.set_title(f"lr {lr}, {steps} steps", fontsize=9)
        axes.set_xlabel("round")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("objective")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, ncols=4, loc="upper center")
    figure.tight_layout(rect=(0, 0, 1, 0.87))
    figure.savefig(place, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(pd.read_csv(sys.argv[1], keep_default_na=True, na_values=["nan"]), Path(sys.argv[2]))
