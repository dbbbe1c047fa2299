"""How often `polyfed advise` is right where the truth follows from how the sites were made.

    python benchmarks/advice.py --draws 20        writes benchmarks/results/advice.csv after every line of the table;
                                                  called again it goes on after the lines that are there
    python benchmarks/advice.py --table           prints the table of docs/advise.md from it

A draw makes fresh sites. Rows are of a logistic law in five features; sites differ in its direction. Tried are going
alone, one global model and the fine-tuned one, all linear, on five splits: the choices and verdicts are those of the
command, with less to choose from.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np

import polyfed as pf
from polyfed.models import linear
from polyfed.problem.metrics import metric_named
from polyfed.studies.advice import SiteAdvice
from polyfed.studies.advice import advice as procedure
from polyfed.studies.advice.settings import AdviceSettings
from polyfed.studies.advice.trials import Trial, run_trial

RESULTS = Path(__file__).parent / "results" / "advice.csv"
DIRECTION = np.array([2.0, -1.5, 1.0, 0.0, 0.5])
TOGETHER = 5
"""Draws whose runs are one sweep."""
Rows = tuple[np.ndarray, np.ndarray]


def site(rows: int, direction: np.ndarray, random: np.random.Generator) -> Rows:
    x = random.normal(size=(rows, len(direction)))
    return x, (random.random(rows) < 1 / (1 + np.exp(-x @ direction))).astype(int)


def alike(random: np.random.Generator) -> dict[str, Rows]:
    return {f"s{k}": site(60, DIRECTION, random) for k in range(6)}


def different(random: np.random.Generator) -> dict[str, Rows]:
    return {f"s{k}": site(300, 1.2 * random.normal(size=5), random) for k in range(6)}


def clusters(random: np.random.Generator) -> dict[str, Rows]:
    return {f"s{k}": site(200, DIRECTION * (1 if k < 3 else -1), random) for k in range(6)}


def opposite(random: np.random.Generator) -> dict[str, Rows]:
    return {f"s{k}": site(200, DIRECTION, random) for k in range(5)} | {"opposite": site(200, -DIRECTION, random)}


def tiny(random: np.random.Generator) -> dict[str, Rows]:
    return {"large": site(1000, DIRECTION, random)} | {f"s{k}": site(40, DIRECTION, random) for k in range(5)}


def noise(random: np.random.Generator) -> dict[str, Rows]:
    return {f"s{k}": (random.normal(size=(100, 5)), random.integers(0, 2, 100)) for k in range(20)}


def joins(told: SiteAdvice) -> bool:
    """Right where together is better by construction."""
    return told.deploy != "alone" and told.verdict != "loses"


def unharmed(told: SiteAdvice) -> bool:
    """Right where nothing is to be had: neither a gain that is not there, nor a loss by the advice."""
    return told.verdict == "cannot tell"


CASES: dict[str, tuple[Callable[[np.random.Generator], dict[str, Rows]], Callable[[SiteAdvice], bool], str]] = {
    "six sites of 60 rows, alike": (alike, joins, "deploy a common model, lose nothing"),
    "six sites of 300 rows, all different": (different, unharmed, "neither gain nor lose"),
    "two clusters of opposite labels, 200 rows a site": (clusters, unharmed, "neither gain nor lose"),
    "five sites of 200 rows, alike": (opposite, joins, "deploy a common model, lose nothing"),
    "beside them, one of opposite labels": (
        opposite,
        lambda told: told.deploy == "alone" and told.verdict != "gains",
        "deploy its own model",
    ),
    "five sites of 40 rows beside one of 1,000": (tiny, joins, "deploy a common model, lose nothing"),
    "twenty sites of pure noise": (noise, lambda told: told.verdict != "gains", "no gain"),
}


def concerned(case: str, told: SiteAdvice) -> bool:
    """Whether a site belongs to this line of the table."""
    if case == "five sites of 200 rows, alike":
        return told.client != "opposite"
    if case == "beside them, one of opposite labels":
        return told.client == "opposite"
    return told.client != "large"


SETTINGS = AdviceSettings(60, splits=5, rounds=20, methods=("global", "fine-tuned"), models=("linear",))


def run(draws: Sequence[int]) -> None:
    """Some draws of every case, and their lines; the runs of all these draws are one sweep."""
    done = {(row["case"], int(row["draw"])) for row in read()}
    makers = list(dict.fromkeys(make for make, _, _ in CASES.values()))
    for make in makers:
        number = [maker for maker, _, _ in CASES.values()].index(make)
        cases = [case for case, (maker, _, _) in CASES.items() if maker == make]
        left = [draw for draw in draws if any((case, draw) not in done for case in cases)]
        sites = {draw: make(np.random.default_rng([draw, number])) for draw in left}
        for draw, advice in zip(left, advised([sites[draw] for draw in left], left), strict=True):
            for case in cases:
                if (case, draw) not in done:
                    write(case, draw, advice)


def advised(drawn: Sequence[dict[str, Rows]], seeds: Sequence[int]) -> Iterator[pf.Advice]:
    """What `polyfed advise` says of each draw, where it takes what it trains from a sweep over all of them."""
    if not drawn:
        return
    federations = [pf.Federation.from_arrays(sites, validation=0.25, test=0.25, classes=2) for sites in drawn]
    each = [dataclasses.replace(SETTINGS, seed=1000 * seed) for seed in seeds]
    problems = [
        pf.Problem(federation.redrawn(settings.seed + split), linear(), "softmax", l2=settings.l2)
        for federation, settings in zip(federations, each, strict=True)
        for split in range(settings.splits)
    ]
    proper = metric_named("log_loss", problems[0])
    trained: dict[str, Trial] = {}
    for way in SETTINGS.ways:
        trial = run_trial(way, "linear", problems, proper, SETTINGS.rounds, lambda _: None)
        assert trial is not None
        trained[way.name] = trial
    for place, (federation, settings) in enumerate(zip(federations, each, strict=True)):
        own = slice(place * settings.splits, (place + 1) * settings.splits)
        with (
            mock.patch.object(procedure, "run_trial", lambda way, *_, own=own: part(trained[way.name], own)),
            mock.patch.object(procedure, "MOST_INFLUENCE", 0),  # leaving sites out chooses nothing
        ):
            yield procedure.advise_with(settings, federation)


def part(trial: Trial, own: slice) -> Trial:
    """The splits of one draw."""
    scores = {name: values[own] for name, values in trial.scores.items()}
    return dataclasses.replace(trial, chosen=trial.chosen[own], loss=trial.loss[own], scores=scores)


def write(case: str, draw: int, advice: pf.Advice) -> None:
    """A line of the results."""
    told = [site for site in advice.sites if concerned(case, site)]
    row: dict[str, object] = {"case": case, "draw": draw, "method": advice.method, "sites": len(told)}
    row["right"] = sum(CASES[case][1](site) for site in told)
    row |= {word: sum(site.verdict == word for site in told) for word in ("gains", "cannot tell", "loses")}
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def read() -> list[dict[str, str]]:
    """The lines that are there."""
    if not RESULTS.exists():
        return []
    with RESULTS.open() as file:
        return list(csv.DictReader(file))


def table() -> str:
    rows = read()
    lines = ["| sites | by construction | draws | right | gains | cannot tell | loses |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for case, (_, _, truth) in CASES.items():
        own = [row for row in rows if row["case"] == case]
        total = sum(int(row["sites"]) for row in own)
        shares = [
            f"{100 * sum(int(row[name]) for row in own) / max(total, 1):.0f}%"
            for name in ("right", "gains", "cannot tell", "loses")
        ]
        lines.append(f"| {case} | {truth} | {len(own)} | {' | '.join(shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        for first in range(given.first, given.first + given.draws, TOGETHER):
            run(range(first, min(first + TOGETHER, given.first + given.draws)))
    print(table())
