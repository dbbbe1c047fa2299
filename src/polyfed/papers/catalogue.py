"""Every paper's experiments, by name."""

from __future__ import annotations

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.papers import apfl, fedbc, flix, plsgd, scafflix
from polyfed.papers.shared.experiment import EXPERIMENTS, Experiment

__all__ = ["EXPERIMENTS", "apfl", "fedbc", "flix", "get", "plsgd", "reproduce_list", "scafflix", "select"]


def get(name: str) -> Experiment:
    """The experiment of this name; an unknown one is refused with the nearest name."""
    if name not in EXPERIMENTS:
        raise PolyfedError(f"unknown experiment '{name}'{suggestion(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


def select(name_or_prefix: str) -> list[Experiment]:
    """The experiment of this name, or those of a paper ("flix"), in the order of the figures."""
    wanted = name_or_prefix.strip("/")
    chosen = [name for name in EXPERIMENTS if name == wanted or name.startswith(f"{wanted}/")]
    if not chosen:
        names = {*EXPERIMENTS, *(name.split("/")[0] for name in EXPERIMENTS)}
        raise PolyfedError(f"unknown experiment '{name_or_prefix}'{suggestion(name_or_prefix, names)}")
    return [EXPERIMENTS[name] for name in sorted(chosen, key=_order)]


def reproduce_list() -> list[dict[str, str]]:
    """A row per experiment: name, title, paper, data; sorted by paper, then by the figure's number."""
    return [
        {"name": each.name, "title": each.title, "paper": each.paper, "data": each.data}
        for each in sorted(EXPERIMENTS.values(), key=lambda each: _order(each.name))
    ]


def _order(name: str) -> tuple[str, str, int, str]:
    """flix/fig2 comes before flix/fig10."""
    paper, _, figure = name.partition("/")
    digits = "".join(c for c in figure if c.isdigit())
    return paper, figure.rstrip("0123456789"), int(digits or 0), figure
