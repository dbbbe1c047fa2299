"""How often `polyfed advise` is right where the truth follows from how the sites were made.

    python benchmarks/advice.py --draws 20        writes benchmarks/results/advice.csv after every line of the table;
                                                  called again it goes on after the lines that are there
    python benchmarks/advice.py --only noise      one case; see CASES
    python benchmarks/advice.py --table           prints the table of docs/advise.md from it

A draw makes fresh sites. Rows are of a logistic law; sites differ in its direction. Tried are going alone, one global
model and the fine-tuned one, all linear, on five splits of 20 rounds: the choices and verdicts are those of the
command, with less to choose from.

What a common model is truly worth is found without polyfed: scikit-learn's logistic regression on fresh sites of the
same law and size, of one site and of all, judged by 4,000 fresh rows a site.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import polyfed as pf
from polyfed.engine import sweep
from polyfed.models import linear
from polyfed.problem.metrics import metric_named
from polyfed.studies.advice import SiteAdvice
from polyfed.studies.advice import advice as procedure
from polyfed.studies.advice.settings import AdviceSettings
from polyfed.studies.advice.trials import Trial, run_trial

RESULTS = Path(__file__).parent / "results" / "advice.csv"
DIRECTION = np.array([2.0, -1.5, 1.0, 0.0, 0.5])
WIDE = 0.8 * np.random.default_rng(15).normal(size=15)
WIDER = 0.5 * np.random.default_rng(40).normal(size=40)
FRESH = 4000
"""Rows that judge what a common model is truly worth."""
TOGETHER = 20
"""Draws whose runs are one sweep."""
Rows = tuple[np.ndarray, np.ndarray]
Law = tuple[int, np.ndarray]
"""Of a site: how many rows it has, and its direction."""


def alike(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (60, DIRECTION) for k in range(6)}


def wide(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (60, WIDE) for k in range(12)}


def wider(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (200, WIDER) for k in range(8)}


def different(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (300, 1.2 * random.normal(size=5)) for k in range(6)}


def clusters(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (200, DIRECTION * (1 if k < 3 else -1)) for k in range(6)}


def opposite(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (200, DIRECTION) for k in range(5)} | {"opposite": (200, -DIRECTION)}


def tiny(random: np.random.Generator) -> dict[str, Law]:
    return {"large": (1000, DIRECTION)} | {f"s{k}": (40, DIRECTION) for k in range(5)}


def noise(random: np.random.Generator) -> dict[str, Law]:
    return {f"s{k}": (100, np.zeros(5)) for k in range(20)}


def joins(told: SiteAdvice) -> bool:
    """Right where together is better by construction."""
    return told.deploy != "alone" and told.verdict != "loses"


def unharmed(told: SiteAdvice) -> bool:
    """Right where nothing is to be had: neither a gain that is not there, nor a loss by the advice."""
    return told.verdict == "cannot tell"


def no_gain(told: SiteAdvice) -> bool:
    return told.verdict != "gains"


@dataclasses.dataclass(frozen=True)
class Case:
    """A line of the table: some sites of a federation, and what is right for them."""

    title: str
    make: Callable[[np.random.Generator], dict[str, Law]]
    right: Callable[[SiteAdvice], bool]
    truth: str
    whose: Callable[[str], bool] = lambda client: client != "large"


CASES = {
    "wider": Case("eight sites of 200 rows, 40 columns, alike", wider, joins, "gain, by a common model"),
    "wide": Case("twelve sites of 60 rows, 15 columns, alike", wide, joins, "gain, by a common model"),
    "alike": Case("six sites of 60 rows, alike", alike, joins, "gain, by a common model"),
    "tiny": Case("five sites of 40 rows beside an alike one of 1,000", tiny, joins, "gain, by a common model"),
    "others": Case(
        "five sites of 200 rows, alike", opposite, joins, "gain a little, by a common model", lambda c: c != "opposite"
    ),
    "opposite": Case(
        "beside them, one of opposite labels",
        opposite,
        lambda told: told.deploy == "alone" and no_gain(told),
        "stay alone",
        lambda c: c == "opposite",
    ),
    "different": Case("six sites of 300 rows, all different", different, unharmed, "neither gain nor lose"),
    "clusters": Case("two clusters of opposite labels, 200 rows a site", clusters, unharmed, "neither gain nor lose"),
    "noise": Case("twenty sites of 100 rows of pure noise", noise, no_gain, "not gain"),
}
SETTINGS = AdviceSettings(60, splits=5, rounds=20, methods=("global", "fine-tuned"), models=("linear",))


def drawn(law: Law, random: np.random.Generator, rows: int | None = None) -> Rows:
    """A site's rows, or more of its law."""
    size, direction = law
    x = random.normal(size=(rows or size, len(direction)))
    return x, (random.random(len(x)) < 1 / (1 + np.exp(-x @ direction))).astype(int)


def truly(laws: dict[str, Law], random: np.random.Generator) -> dict[str, float]:
    """What one common model of all sites' rows is worth to each of them, in AUC: it has no part in what is advised."""
    sites = {name: drawn(law, random) for name, law in laws.items()}
    training = {name: (x[: len(x) // 2], y[: len(y) // 2]) for name, (x, y) in sites.items()}
    everybody = tuple(np.concatenate(parts) for parts in zip(*training.values(), strict=True))
    together = LogisticRegression(max_iter=1000).fit(*everybody)
    gains = {}
    for name, law in laws.items():
        x, y = drawn(law, random, FRESH)
        own = training[name]
        alone = 0.5
        if len(np.unique(own[1])) == 2:
            alone = float(roc_auc_score(y, LogisticRegression(max_iter=1000).fit(*own).decision_function(x)))
        gains[name] = float(roc_auc_score(y, together.decision_function(x))) - alone
    return gains


def run(draws: Sequence[int], only: Sequence[str]) -> None:
    """Some draws of these cases, and their lines; the runs of all these draws are one sweep."""
    done = {(row["case"], int(row["draw"])) for row in read()}
    makers = list(dict.fromkeys(case.make for case in CASES.values()))
    for make in dict.fromkeys(CASES[name].make for name in only):
        cases = [name for name, case in CASES.items() if case.make == make]
        left = [draw for draw in draws if any((name, draw) not in done for name in cases)]
        random = {draw: np.random.default_rng([draw, makers.index(make)]) for draw in left}
        laws = {draw: make(random[draw]) for draw in left}
        sites = [{client: drawn(law, random[draw]) for client, law in laws[draw].items()} for draw in left]
        for draw, advice in zip(left, advised(sites, left), strict=True):
            worth = truly(laws[draw], random[draw])
            for name in cases:
                if (name, draw) not in done:
                    write(name, draw, advice, worth)


def advised(sites: Sequence[dict[str, Rows]], seeds: Sequence[int]) -> Iterator[pf.Advice]:
    """What `polyfed advise` says of each draw, where it takes what it trains from a sweep over all of them."""
    if not sites:
        return
    federations = [pf.Federation.from_arrays(own, validation=0.25, test=0.25, classes=2) for own in sites]
    each = [dataclasses.replace(SETTINGS, seed=1000 * seed) for seed in seeds]
    problems = [
        pf.Problem(federation.redrawn(settings.seed + split), linear(), "softmax", l2=settings.l2)
        for federation, settings in zip(federations, each, strict=True)
        for split in range(settings.splits)
    ]
    proper = metric_named("log_loss", problems[0])
    trained: dict[str, Trial] = {}
    for way in SETTINGS.ways:
        with mock.patch.object(sweep, "MOST", len(problems) * len(way.candidates)):  # one program for all of them
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


WORDS = ("gains", "cannot tell", "loses")


def write(name: str, draw: int, advice: pf.Advice, worth: dict[str, float]) -> None:
    """A line of the results."""
    case = CASES[name]
    told = [site for site in advice.sites if case.whose(site.client)]
    row: dict[str, object] = {"case": name, "draw": draw, "method": advice.method, "sites": len(told)}
    row["right"] = sum(case.right(site) for site in told)
    row |= {word: sum(site.verdict == word for site in told) for word in WORDS}
    row |= {f"{word}, corrected": sum(site.verdict_among_all == word for site in told) for word in WORDS}
    row["deploy a common model"] = sum(site.deploy != "alone" for site in told)
    mean = advice.mean
    row["mean"] = "gains" if mean.known and mean.low > 0 else "loses" if mean.known and mean.high < 0 else "cannot tell"
    row["gain"] = round(float(np.nanmean([site.gain for site in told])), 5)
    row["truth"] = round(float(np.mean([worth[site.client] for site in told])), 5)
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


TOLD = ("sites", "right is to", "draws", "right", "told to deploy a common model")
VERDICTS = ("sites", "true gain", "gain found", *WORDS, "mean certain")


def table() -> str:
    """The tables of docs/advise.md. Shares are of sites over all draws; those of the mean are of draws.

    A dash: earlier draws did not note it.
    """
    rows = read()
    told = [f"| {' | '.join(TOLD)} |", f"| --- | --- |{' ---: |' * (len(TOLD) - 2)}"]
    verdicts = [f"| {' | '.join(VERDICTS)} |", f"| --- |{' ---: |' * (len(VERDICTS) - 1)}"]
    for name, case in CASES.items():
        own = [row for row in rows if row["case"] == name]
        if not own:
            continue
        total = sum(int(row["sites"]) for row in own)

        def share(column: str, own: list[dict[str, str]] = own, total: int = total) -> str:
            if not all(row[column] for row in own):
                return "–"
            count = sum(int(row[column]) for row in own)
            return f"{count:,} of {total:,} ({100 * count / total:.1f}%)"

        def mean(column: str, own: list[dict[str, str]] = own) -> str:
            return f"{np.mean([float(row[column]) for row in own]):+.3f}" if all(row[column] for row in own) else "–"

        certain = [sum(row["mean"] == word for row in own) for word in ("gains", "loses")]
        means = f"{certain[0]} up, {certain[1]} down of {len(own)}" if all(row["mean"] for row in own) else "–"
        cells = [case.title, case.truth, str(len(own)), share("right"), share("deploy a common model")]
        told.append(f"| {' | '.join(cells)} |")
        cells = [case.title, mean("truth"), mean("gain"), *map(share, WORDS), means]
        verdicts.append(f"| {' | '.join(cells)} |")
    return "\n".join([*told, "", *verdicts])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        for first in range(given.first, given.first + given.draws, TOGETHER):
            run(range(first, min(first + TOGETHER, given.first + given.draws)), given.only)
    print(table())
