"""The leaderboard's page: a table for every federation, the ranks over all, and what to use when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.studies.leaderboard.board import Board
from polyfed.studies.leaderboard.cell import Cell, spec_of
from polyfed.studies.leaderboard.contenders import BUDGET, contenders
from polyfed.studies.leaderboard.federations import FEDERATIONS, Arena
from polyfed.studies.leaderboard.ranks import Rank, difference, ranks
from polyfed.studies.verdicts.intervals import Interval

ALONE = "local"
MARKERS = "<!-- begin:leaderboard -->\n", "<!-- end:leaderboard -->"
Cells = Mapping[str, Sequence[Cell]]


def page(board: Board) -> str:
    """What the measured rows say, as Markdown."""
    there = {name: cells for name in FEDERATIONS if (cells := _current(board, name))}
    if not there:
        return "No cell has been run yet.\n"
    standings = {name: standing(cells) for name, cells in there.items()}
    parts = [_when(there, standings), _overall(standings)]
    parts += [_federation(FEDERATIONS[name], cells, standings[name]) for name, cells in there.items()]
    missing = [arena.title for name, arena in FEDERATIONS.items() if name not in there]
    if missing:
        parts.append(f"## Not run yet\n\n{'; '.join(missing)}.\n")
    return "\n".join(parts)


def _current(board: Board, name: str) -> Cells:
    """A federation's cells without those of other settings, so that one table has one set of rules."""
    known = contenders()
    return {
        method: cells
        for method, cells in board.of(name).items()
        if method not in known or board.has(name, method, spec_of(FEDERATIONS[name], known[method]))
    }


def write_page(board: Board, path: Path) -> None:
    """Renew the part between the markers of a page, or write a page with nothing else."""
    begin, end = MARKERS
    if not path.exists():
        write_text(path, f"# Leaderboard\n\n{begin}{page(board)}{end}\n")
        return
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise PolyfedError(f"{path}: has no part between {begin.strip()} and {end}; choose another page")
    fresh = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + page(board) + end, text, flags=re.S)
    write_text(path, fresh)


def standing(cells: Cells) -> dict[str, Rank]:
    """The ranks of a federation's methods by what their clients deploy, over the seeds that all have."""
    seeds = set.intersection(*({cell.seed for cell in own} for own in cells.values()))
    return ranks({method: _values(own, "personal", seeds) for method, own in cells.items()})


def _values(cells: Sequence[Cell], name: str, seeds: set[int] | None = None) -> np.ndarray:
    """One value for each seed; nan where there is none."""
    chosen = [cell for cell in cells if seeds is None or cell.seed in seeds]
    return np.array([np.nan if getattr(cell, name) is None else getattr(cell, name) for cell in chosen], float)


def gain(cells: Cells, method: str) -> Interval | None:
    """How far the deployed models are ahead of going alone, paired by seed."""
    if ALONE not in cells or method == ALONE:
        return None
    common = {cell.seed for cell in cells[method]} & {cell.seed for cell in cells[ALONE]}
    return difference(_values(cells[method], "personal", common), _values(cells[ALONE], "personal", common))


def bits_to_target(cells: Cells, method: str) -> tuple[float, int]:
    """The mean bits until the validation loss is that of going alone at its end, and how many seeds came that far."""
    targets = {cell.seed: float(cell.curve.split()[-1]) for cell in cells.get(ALONE, []) if cell.curve}
    spent = []
    for cell in cells[method]:
        points = np.array([float(point) for point in cell.curve.split()])
        if cell.seed not in targets or not len(points):
            continue
        reached = np.flatnonzero(points <= targets[cell.seed])
        if len(reached):
            spent.append(cell.bits * reached[0] / max(1, len(points) - 1))
    return (float(np.mean(spent)) if spent else np.nan), len(spent)


def _federation(arena: Arena, cells: Cells, places: Mapping[str, Rank]) -> str:
    """A federation's heading, what it is, and its table."""
    some = next(iter(cells.values()))
    who = "all clients" if arena.participation == 1.0 else f"{arena.participation} clients a round"
    missing = len(set(contenders()) - set(cells))
    lines = [
        f"## {arena.title}\n",
        f"{arena.words[0].upper()}{arena.words[1:]}. Model: {arena.model}. "
        f"The bits of {arena.rounds} rounds with {who}; {arena.local_steps} local steps of 20 rows; {len(some)} draws. "
        f"Figures are {_metric(arena)} on test rows."
        + (f" Methods that have not been run here with these settings: {missing}.\n" if missing else "\n"),
        "| rank | method | deployed | ahead of going alone | worst tenth | global model "
        "| Mbit to the loss of going alone | rounds | seconds | chosen |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for method in sorted(cells, key=lambda name: places[name].place):
        own = cells[method]
        ahead, (spent, reached) = gain(cells, method), bits_to_target(cells, method)
        cost = "never" if not reached else f"{spent / 1e6:.3g}"
        cost += f" ({reached} of {len(own)})" if 0 < reached < len(own) else ""
        lines.append(
            f"| {places[method].words} | {method} | {_mean(own, 'personal')} | {_interval(ahead)} "
            f"| {_mean(own, 'worst')} | {_mean(own, 'shared')} | {cost} | {own[0].rounds} "
            f"| {np.mean(_values(own, 'seconds')):.2g} | {own[0].chosen or '-'} |"
        )
    return "\n".join(lines) + "\n"


def _metric(arena: Arena) -> str:
    return {"logistic": "the AUC", "tags": "recall@5", "softmax": "accuracy"}[arena.loss]


def _mean(cells: Sequence[Cell], name: str) -> str:
    values = _values(cells, name)
    if np.isnan(values).all():
        return "-"
    return f"{np.mean(values):.3f}" if np.isfinite(values).all() else f"diverged in {np.isnan(values).sum()}"


def _interval(found: Interval | None) -> str:
    if found is None or not np.isfinite(found.estimate):
        return "-"
    return f"{found.estimate:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


Standings = Mapping[str, Mapping[str, Rank]]


def complete(standings: Standings) -> list[str]:
    """The federations on which every method that has any row has been run: ranks among fewer are other ranks."""
    methods = {method for places in standings.values() for method in places}
    return [name for name, places in standings.items() if set(places) == methods]


def _overall(standings: Standings) -> str:
    """Ranks by federation, and their mean over those that are complete."""
    methods, whole = sorted({method for places in standings.values() for method in places}), complete(standings)
    found = {m: [standings[name][m] for name in whole] for m in methods}
    heads = [
        FEDERATIONS[name].title + ("" if name in whole else f", {len(places)} methods")
        for name, places in standings.items()
    ]
    lines = [
        "## Ranks\n",
        "Of the methods that have been run on a federation; the mean is over the federations with all methods.\n",
        "| method | mean rank | " + " | ".join(heads) + " |",
        "| --- | --- |" + " --- |" * len(heads),
    ]

    def mean(method: str, name: str) -> float:
        return float(np.mean([getattr(rank, name) for rank in found[method]])) if whole else np.nan

    for method in sorted(methods, key=lambda m: mean(m, "place")):
        cells = " | ".join(places[method].words if method in places else "-" for places in standings.values())
        span = f"{mean(method, 'place'):.1f} ({mean(method, 'low'):.1f} to {mean(method, 'high'):.1f})"
        lines.append(f"| {method} | {span if whole else '-'} | {cells} |")
    return "\n".join(lines) + "\n"


def _when(there: Mapping[str, Cells], standings: Standings) -> str:
    """What the rows say of each federation, and of all complete ones; nothing that they do not say."""
    lines = ["## What to use when\n", "From the rows below alone.\n"]
    gains = {name: {method: gain(cells, method) for method in cells} for name, cells in there.items()}
    for name, places in standings.items():
        best = min(places, key=lambda method: places[method].place)
        tied = [m for m in sorted(places, key=lambda m: places[m].place) if places[m].low == 1 and m != best]
        words = f"- **{FEDERATIONS[name].title}.** {best} has the highest mean"
        words += f"; not surely behind: {_listed(tied)}" if tied else ", ahead of all others for sure"
        better = [m for m, found in gains[name].items() if found is not None and found.sign == "above"]
        worse = [m for m, found in gains[name].items() if found is not None and found.sign == "below"]
        if ALONE in places:
            words += f". Surely better than going alone: {len(better)} of {len(places) - 1}; surely worse: {len(worse)}"
        lines.append(words + ".")
    if whole := complete(standings):
        methods = sorted(standings[whole[0]])
        others = [m for m in methods if m != ALONE]
        first = [m for m in methods if all(standings[name][m].low == 1 for name in whole)]
        never = [m for m in others if all(_sign(gains[name][m]) != "below" for name in whole)]
        always = [m for m in never if all(_sign(gains[name][m]) == "above" for name in whole)]
        lines.append(f"- **On all {len(whole)} with every method.** Possibly first on each: {_listed(first)}.")
        lines.append(f"- Surely better than going alone on each: {_listed(always)}.")
        lines.append(f"- Surely worse than going alone on none: {_listed(never)}.")
    lines.append(
        f"\nEvery method had {BUDGET} candidates. A star in the last column marks a value at the end of its range: "
        f"{_edges(there)}."
    )
    return "\n".join(lines) + "\n"


def _edges(there: Mapping[str, Cells]) -> str:
    """How often tuning chose the end of a range."""
    chosen = [part for cells in there.values() for own in cells.values() for part in own[0].chosen.split(", ") if part]
    return f"{sum(part.endswith('*') for part in chosen)} of {len(chosen)} values"


def _sign(found: Interval | None) -> str:
    return "undecided" if found is None else found.sign


def _listed(methods: Sequence[str]) -> str:
    return "; ".join(methods) if methods else "none"
