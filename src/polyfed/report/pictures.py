"""`result.plot`: a run as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyfed.core.errors import PolyfedError
from polyfed.core.extras import extra_package
from polyfed.engine.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("personal", "global", "finetuned")


def history_figure(result: Result, metric: str | None = None) -> Figure:
    """The objective, and a metric of test rows (training rows where there are none), over the rounds."""
    make_figure: type[Figure] = extra_package("matplotlib.figure", "figures", "a picture").Figure
    rows, rounds = result.rows, [row["round"] for row in result.rows]
    wanted = metric or result.problem.loss.metric_name
    split = "test" if any(name.startswith("personal_test_") for name in rows[-1]) else "train"
    shown = [model for model in MODELS if f"{model}_{split}_{wanted}" in rows[-1]]
    if not shown:
        known = sorted({name.split("_", 2)[2] for name in rows[-1] if name.startswith(f"personal_{split}_")})
        raise PolyfedError(f"the history has no metric {wanted!r}; it has {', '.join(known)}")
    figure = make_figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(rounds, [row["objective"] for row in rows], color="black")
    left.set(xlabel="round", ylabel="objective")
    for model in shown:
        right.plot(rounds, [row[f"{model}_{split}_{wanted}"] for row in rows], label=model)
    right.set(xlabel="round", ylabel=f"{wanted.replace('_', ' ')}, {split} rows, mean over clients")
    if len(shown) > 1:
        right.legend()
    return figure
