"""Do the intervals for a client's gain hold the true gain as often as they say?

    python benchmarks/coverage.py --federations 400 --record docs/coverage.json --picture docs/images/coverage.png

For each law, client size and metric: the share of federations whose interval holds the true gain, and the median width,
beside those of Nadeau and Bengio's interval and of a bootstrap over test rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from coverage_laws import METRICS, Law, federation
from scipy.special import log_expit

from polyfed.studies.verdicts import (
    Interval,
    RowEvidence,
    auc_evidence,
    interval_on_rows,
    mean_evidence,
    mean_over_evidence,
    over_evidence,
    over_splits,
    student,
    unknown,
)

SIZES = (20, 100, 1000)
LAWS = (
    Law("near the others"),
    Law("far from the others", distance=1.5),
    Law("7.5% positive", intercept=-3.55, strength=0.6, distance=0.3),
    Law("few features", dimension=4, strength=1.0, distance=0.6, others_rows=300, test_share=0.2),
    Law("personal models", distance=0.6, others=8, others_differ=True, pull=0.3, test_share=0.25),
    Law("20 features, ten others", dimension=20, strength=0.4, distance=0.2, others=10, others_rows=2000),
    Law("noisy labels, little ridge", dimension=6, strength=1.5, distance=0.8, flips=0.2, ridge=0.02),
)
"""The laws that the method was chosen on."""
UNSEEN = (
    Law("12% positive, test share 0.2", dimension=12, intercept=-3.0, strength=0.6, distance=0.3, test_share=0.2),
    Law("a curve that no model has", dimension=5, strength=0.8, distance=0.5, curvature=0.8, others=4, test_share=0.25),
    Law("a validation part, half the rows for training", validation_share=0.2, distance=0.3),
    Law("against the others", dimension=6, distance=2.5, others=5, others_differ=True, test_share=0.2),
    Law("two features, few other rows", dimension=3, strength=1.2, distance=0.8, others_rows=200, ridge=0.01),
    Law("one law for all", dimension=15, distance=0.0, strength=0.5, others_rows=1500),
)
"""Laws that no number of the method was chosen by, but that were looked at before it was final."""
LAST = (
    Law("near the others, tested in tenths", in_tenths=True),
    Law("27% positive", dimension=10, intercept=-1.5, strength=0.6, others=3, others_rows=900, others_differ=True),
    Law("test share 0.35", dimension=7, strength=0.9, distance=0.6, ridge=0.03, test_share=0.35),
    Law("strong signal, hardly any ridge", dimension=5, strength=2.0, distance=0.5, ridge=0.01),
    Law("weak signal, noisy labels", dimension=9, strength=0.5, distance=0.3, flips=0.3),
    Law("personal models of five clients", dimension=6, distance=0.8, others=5, others_differ=True, pull=1.0),
    Law("30 features, much ridge", dimension=31, strength=0.3, distance=0.15, ridge=0.3, others_rows=3000),
    Law("most positive, a curve", dimension=6, intercept=1.8, curvature=0.5, test_share=0.25),
)
"""Laws that were run for the first time when the method was final."""
METHODS = ("polyfed", "Nadeau-Bengio", "rows alone", "one split")
MEAN = Law("near the others", others_rows=0)
MEAN_CLIENTS = 8


def evidence(split: np.ndarray, rows: np.ndarray) -> list[RowEvidence]:
    """By metric, what one split's test rows say of the gain; `split` has labels, scores together, scores alone."""
    labels, together, alone = split
    positive = labels == 1
    right = ((together > 0) == positive) * 1.0 - ((alone > 0) == positive)
    likelihood = log_expit(np.where(positive, together, -together)) - log_expit(np.where(positive, alone, -alone))
    return [
        mean_evidence(right, "steps", rows),
        auc_evidence(together, alone, labels),
        mean_evidence(likelihood),
    ]


def judge(law: Law, rows: int, splits: int, fresh_sets: int, seed: int) -> np.ndarray:
    """(metrics, methods, 3) of one federation: does the interval hold the mean of the splits' true gains, does it hold
    the expected one, and how wide is it; NaN where there is none. One split is judged by its own true gain."""
    (client,) = federation(law, rows, splits, seed, fresh_sets=fresh_sets)
    by_split = [evidence(*split) for split in zip(client.scores, client.rows, strict=True)]
    outcome = np.full((len(METRICS), len(METHODS), 3), np.nan)
    for metric in range(len(METRICS)):
        own = [split[metric] for split in by_split]
        true, expected = float(np.mean(client.true[:, metric])), float(client.expected[metric])
        gains, tests = [split.gain for split in own], [split.test_rows for split in own]
        intervals = [
            over_evidence(own, client.train_rows),
            over_splits(gains, tests, client.train_rows, floors=[0] * splits),
        ]
        intervals.append(_rows_alone(own, client.train_rows))
        for method, interval in enumerate(intervals):
            outcome[metric, method] = _held(interval, true, expected)
        outcome[metric, -1] = _held(interval_on_rows(own[0]), float(client.true[0, metric]), np.nan)
    return outcome


def judge_mean(law: Law, clients: int, rows: int, splits: int, seed: int) -> np.ndarray:
    """(metrics, 1, 3) as `judge`, of the mean over the clients of a federation."""
    drawn = federation(law, rows, splits, seed, judged=clients)
    every = [[evidence(*split) for split in zip(client.scores, client.rows, strict=True)] for client in drawn]
    outcome = np.full((len(METRICS), 1, 3), np.nan)
    for metric in range(len(METRICS)):
        own = [[split[metric] for split in client] for client in every]
        interval = mean_over_evidence(own, [client.train_rows for client in drawn])
        outcome[metric, 0] = _held(interval, float(np.mean([client.true[:, metric] for client in drawn])), np.nan)
    return outcome


def study(
    laws: Iterable[Law],
    federations: int,
    splits: int = 10,
    sizes: Sequence[int] = SIZES,
    fresh_sets: int = 0,
    workers: int = 1,
) -> list[dict[str, Any]]:
    """A record for each law, size and metric: how many federations have an interval, and by method the share of these
    whose interval holds the true gain, and the median width."""
    records = []
    for law in laws:
        for rows in sizes:
            one = partial(judge, law, rows, splits, fresh_sets)
            records += _records(_map(one, federations, workers), METHODS, law=law.name, rows=rows, splits=splits)
    return records


def study_mean(
    federations: int, splits: int = 10, sizes: Sequence[int] = SIZES, workers: int = 1
) -> list[dict[str, Any]]:
    """As `study`, for the mean over all clients of a federation."""
    records = []
    for rows in sizes:
        one = partial(judge_mean, MEAN, MEAN_CLIENTS, rows, splits)
        name = f"mean over {MEAN_CLIENTS} clients"
        records += _records(_map(one, federations, workers), ("polyfed",), law=name, rows=rows, splits=splits)
    return records


def table(records: Sequence[dict[str, Any]]) -> str:
    """The records as Markdown: coverage, and in brackets the width."""
    methods = [method for method in METHODS if any(method in record["covered"] for record in records)]
    lines = ["| law | rows | metric | " + " | ".join(methods) + " |", "| --- | ---: | --- |" + " --- |" * len(methods)]
    for record in records:
        shares, widths = record["covered"], record["width"]
        cells = [f"{shares[method]:.3f} ({widths[method]:.3f})" if method in shares else "none" for method in methods]
        lines.append(f"| {record['law']} | {record['rows']:,} | {record['metric']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(records: Sequence[dict[str, Any]], place: Path) -> None:
    """Coverage by size, a panel for each metric: ours and Nadeau and Bengio's, a dot for each law."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(METRICS), figsize=(9, 3.4), dpi=150, sharey=True)
    looks = {"polyfed": ("#1f5fa8", "o", -0.19), "Nadeau-Bengio": ("#c98a2b", "D", 0.19)}
    sizes = sorted({record["rows"] for record in records})
    for axes, metric in zip(panels, METRICS, strict=True):
        axes.axhspan(0.93, 0.99, color="#e8eef6", zorder=0)
        axes.axhline(0.95, color="#8a8f98", linewidth=0.8)
        for method, (color, marker, shift) in looks.items():
            own = [record for record in records if record["metric"] == metric]
            laws = list(dict.fromkeys(record["law"] for record in own))
            places = [sizes.index(r["rows"]) + shift + 0.34 * (laws.index(r["law"]) / len(laws) - 0.5) for r in own]
            heights = [max(record["covered"][method], 0.85) for record in own]
            axes.scatter(places, heights, s=16, color=color, marker=marker, label=method, zorder=3)
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.set_title(metric, fontsize=10)
        axes.set_xlabel("rows of the client")
        axes.set_ylim(0.845, 1.005)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks([0.85, 0.9, 0.93, 0.95, 0.99], ["85% or less", "90%", "93%", "95%", "99%"])
    panels[0].set_ylabel("intervals that hold the true gain")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=2, loc="upper center")
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, metadata={"Software": None})
    plt.close(figure)


def _rows_alone(own: Sequence[RowEvidence], train_rows: float) -> Interval:
    """What a bootstrap over rows comes to: the models are taken as given, and rows as the only chance there is."""
    known = [split for split in own if np.isfinite(split.error)]
    if not known:
        return unknown()
    test = float(np.mean([split.test_rows for split in known]))
    independent = 1 / (1 / (test + train_rows) + (1 / test - 1 / (test + train_rows)) / len(known))
    error = np.sqrt(np.mean([split.error**2 for split in known]) * test / independent)
    return student(float(np.mean([split.gain for split in known])), float(error), np.inf)


def _held(interval: Interval, true: float, expected: float) -> tuple[float, float, float]:
    if not interval.known:
        return np.nan, np.nan, np.nan
    holds = [
        float(interval.low <= value <= interval.high) if np.isfinite(value) else np.nan for value in (true, expected)
    ]
    return holds[0], holds[1], interval.high - interval.low


def _map(one: Any, federations: int, workers: int) -> np.ndarray:
    if workers == 1:
        return np.array([one(seed) for seed in range(federations)])
    with ProcessPoolExecutor(workers) as pool:
        return np.array(list(pool.map(one, range(federations), chunksize=10)))


def _records(outcomes: np.ndarray, methods: Sequence[str], **which: Any) -> list[dict[str, Any]]:
    records = []
    for number, metric in enumerate(METRICS):
        own = outcomes[:, number]
        known = np.isfinite(own[:, :, 0])
        share = {m: float(np.mean(own[known[:, k], k, 0])) for k, m in enumerate(methods) if known[:, k].any()}
        wide = {m: float(np.median(own[known[:, k], k, 2])) for k, m in enumerate(methods) if known[:, k].any()}
        record = {**which, "metric": metric, "federations": len(own), "known": int(known[:, 0].sum())}
        record |= {"covered": share, "width": wide}
        if np.isfinite(own[:, :, 1]).any():
            has = np.isfinite(own[:, 0, 1])
            record["covered_expected"] = float(np.mean(own[has, 0, 1]))
        records.append(record)
    return records


def main() -> None:
    """Run all laws, print their table, and write the record and the picture."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--federations", type=int, default=400)
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--fresh-sets", type=int, default=0, help="training sets for the expected gain")
    options.add_argument("--laws", choices=("chosen", "unseen", "last", "mean", "all"), default="all")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--record", type=Path)
    options.add_argument("--picture", type=Path)
    asked = options.parse_args()
    groups = {"chosen": LAWS, "unseen": UNSEEN, "last": LAST, "mean": ()}
    records: dict[str, list[dict[str, Any]]] = {group: [] for group in groups if asked.laws in (group, "all")}
    for group in records:
        for law in groups[group]:
            records[group] += study([law], asked.federations, asked.splits, SIZES, asked.fresh_sets, asked.workers)
            print(table(records[group][-len(SIZES) * len(METRICS) :]), flush=True)
        if group == "mean":
            records[group] = study_mean(asked.federations, asked.splits, workers=asked.workers)
            print(table(records[group]), flush=True)
        if asked.record:
            asked.record.write_text(json.dumps(records, indent=1) + "\n")
    if asked.picture:
        draw([record for group in ("chosen", "unseen", "last") for record in records.get(group, [])], asked.picture)


if __name__ == "__main__":
    main()
