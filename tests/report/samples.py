"""Run records with made-up numbers, as the engine would leave them behind."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from scipy import stats

from polyfed.engine import fairness
from polyfed.studies.own_shares import Shares
from polyfed.studies.run_directory import RunRecord


def moving(run: RunRecord, start: float = 0.5) -> RunRecord:
    """The run with own shares that go from `start` to what its clients end with, evenly over the rounds."""
    end = np.array([row["own_share"] for row in run.clients])
    rounds = [int(row["round"]) for row in run.history]
    values = np.array([start + (end - start) * at / max(rounds[-1], 1) for at in rounds])
    return dataclasses.replace(
        run, shares=Shares(tuple(str(row["client"]) for row in run.clients), tuple(rounds), values)
    )


MODELS = ("global", "personal", "alone", "finetuned", "constant")
METRICS = {
    "accuracy": {"name": "accuracy", "label": "accuracy", "higher_is_better": True, "is_share": True},
    "auc": {"name": "auc", "label": "AUC", "higher_is_better": True, "is_share": False},
    "rmse": {"name": "rmse", "label": "RMSE", "higher_is_better": False, "is_share": False},
}


def fair(run: RunRecord, weights: list[float] | None = None) -> RunRecord:
    """The run with what is measured of fairness: in its history, its summary, and a weight for each client."""
    rows = np.array([row["train_rows"] for row in run.clients])
    shares = np.full(len(rows), 1 / len(rows)) if weights is None else np.array(weights)
    for row, share in zip(run.clients, shares, strict=True):
        row["server_weight"] = float(share)
    for model, splits in run.summary["models"].items():
        for split, metrics in splits.items():
            for metric, figures in metrics.items():
                values = np.array([row[f"{model}_{split}_{metric}"] for row in run.clients])
                figures |= fairness.disparity(values, rows)
                for line in run.history:
                    if f"{model}_{split}_{metric}" in line and split == "test" and metric != "loss":
                        names = {f"{model}_{split}_{metric}_{name}": figures[name] for name in fairness.OVER_ROUNDS}
                        line |= {
                            name: value * line["round"] / run.history[-1]["round"] for name, value in names.items()
                        }
    run.summary["attention"] = fairness.attention(shares, rows)
    return run


def make_run(
    label: str = "FedAvg",
    *,
    algorithm: str | None = None,
    seed: int = 0,
    clients: int | list[str] = 6,
    rounds: int = 10,
    lift: float = 0.05,
    metric: str = "accuracy",
    curve: str | None = None,
    models: tuple[str, ...] = MODELS,
    splits: tuple[str, ...] = ("train", "validation", "test"),
    sizes: tuple[int, int] = (20, 900),
    positives: float | None = None,
    noise: float = 0.03,
    bits_per_round: int = 640_000,
    own_share: bool = False,
    diverged: bool = False,
    **summary: Any,
) -> RunRecord:
    """A run whose personal model is about `lift` better than going alone; numbers depend on the arguments alone.

    `curve`: the metric that the history has, where it is not the shown one.
    """
    names = [f"Site {i + 1}" for i in range(clients)] if isinstance(clients, int) else clients
    draw = np.random.default_rng([seed, sum(map(ord, label)), len(names)])
    base = np.random.default_rng([7, len(names)])
    ability, size = base.uniform(0.55, 0.85, len(names)), base.integers(*sizes, len(names))
    shift = {"alone": 0.0, "global": lift / 2, "personal": lift, "finetuned": 0.8 * lift}
    higher = METRICS[metric]["higher_is_better"]
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        rest = max(2, int(size[i]) // 3)
        row: dict[str, Any] = {"client": name, "rows": float(size[i] + 2 * rest), "train_rows": float(size[i])}
        row |= {"validation_rows": float(rest), "test_rows": float(rest)}
        if positives is not None:
            row["positives"] = float(np.clip(base.normal(positives, positives / 3), 0.01, 0.99))
        row["own_share"] = float(draw.beta(2, 3)) if own_share else ""
        for model in models:
            off = 0.0 if model == "alone" else draw.normal(0, 2 * noise if model == "global" else noise)
            good = min(ability[i] + (0 if model == "alone" else shift.get(model, 0) + off), 0.995)
            good = 0.5 if model == "constant" else good
            for split in (split for split in splits if model != "constant" or split != "train"):
                row[f"{model}_{split}_{metric}"] = float(good if higher else 1.2 - good)
                row[f"{model}_{split}_loss"] = float(1.4 - good)
        rows.append(row)
    history = []
    for at in range(rounds + 1):
        progress = 1 - math.exp(-4 * at / max(rounds, 1)) + float(draw.normal(0, 0.006))
        line: dict[str, Any] = {"round": at, "iterations": 10 * at, "bits_up": bits_per_round * at}
        line |= {"bits_down": 2 * bits_per_round * at, "seconds": 0.1 * at, "objective": 2.3 - 1.6 * progress}
        for model in ("personal", "global"):
            for split in splits if model in models else ():
                end = float(np.mean([row[f"{model}_{split}_{metric}"] for row in rows]))
                start = 0.1 if higher else 3.0
                line[f"{model}_{split}_{curve or metric}"] = start + (end - start) * progress
                line[f"{model}_{split}_loss"] = 2.3 - 1.7 * progress
        history.append(line)
    more = {"algorithm": algorithm or label.lower(), "diverged": diverged}
    return make_record(label, rows, history, seed=seed, metric=metric, **more, **summary)


def make_record(
    label: str, rows: list[dict[str, Any]], history: list[dict[str, Any]], *, seed: int = 0, metric: str, **more: Any
) -> RunRecord:
    """A record around given client rows; its summary is computed from them, gains from rows that have none."""
    models: dict[str, Any] = {}
    for model in MODELS:
        for split in ("train", "validation", "test"):
            for name in (metric, "loss"):
                column: list[Any] = [row.get(f"{model}_{split}_{name}") for row in rows]
                if rows and all(isinstance(value, float) for value in column):
                    weights = [row["train_rows"] for row in rows]
                    higher = name != "loss" and METRICS[metric]["higher_is_better"]
                    models.setdefault(model, {}).setdefault(split, {})[name] = _statistics(column, weights, higher)
    last = history[-1] if history else {}
    summary = {
        "label": label,
        "algorithm": label.lower(),
        "metric": METRICS[metric],
        "seed": seed,
        "split": None,
        "splits": 1,
        "rounds": len(history) - 1,
        "clients": len(rows),
        "parameters": 7850,
        "dtype": "float32",
        "seconds": 12.5 + seed,
        "compile_seconds": 3.25,
        "bits_up": last.get("bits_up", 0),
        "bits_down": last.get("bits_down", 0),
        "iterations": last.get("iterations", 0),
        "excluded": {},
        "diverged": False,
        "models": models,
        "undefined": {},
        "cautions": [],
        "figure": f"the personal model on every client's test rows after round {len(history) - 1}",
    }
    config = {
        "data": {"name": "synthetic", "alpha": 0.5},
        "problem": {"model": "mlp", "hidden": [200, 200], "l2": 1e-4},
        "algorithm": {"name": label.lower(), "lr": 0.1},
        "run": {"rounds": len(history) - 1, "seed": seed},
    }
    run = RunRecord(Path("runs", quote(label, safe=""), str(seed)), config, history, rows, summary | more)
    return run if "gains" in more else judged([run])[0]


def judged(runs: list[RunRecord], spread: float = 0.35) -> list[RunRecord]:
    """The runs of one method with the same gains and verdicts in each, from their means.

    A client's standard error is `spread` over the root of all its test rows; verdicts are at 95%, after Holm.
    """
    gains: dict[str, Any] = {}
    for reference, prefix in (("alone", ""), ("global", "global_"), ("constant", "constant_")):
        gains[reference] = _judge(runs, reference, prefix, spread)
    for run in runs:
        run.summary["gains"] = gains
    return runs


def _judge(runs: list[RunRecord], reference: str, prefix: str, spread: float) -> dict[str, Any] | None:
    metric = runs[0].summary["metric"]
    deployed = next((m for m in ("personal", "global") if m in runs[0].summary["models"]), "personal")
    columns = [f"{model}_test_{metric['name']}" for model in (deployed, reference)]
    if deployed == reference or not all(column in row for run in runs for row in run.clients for column in columns):
        return None
    values = np.array([[[float(row[c]) for c in columns] for row in run.clients] for run in runs]).mean(0)
    gain = (values[:, 0] - values[:, 1]) * (1 if metric["higher_is_better"] else -1)
    rows = np.array([float(row.get("test_rows", 100.0)) for row in runs[0].clients])
    error = spread / np.sqrt(rows * len(runs))
    p = 2 * stats.norm.sf(np.abs(gain) / error)
    told = p < 0.05  # each by itself, as clients.csv has it; a summary counts after Holm's correction
    certain = _holm(p)
    for run in runs:
        for i, row in enumerate(run.clients):
            verdict = "cannot tell" if not told[i] else "gains" if gain[i] > 0 else "loses"
            low, high = gain[i] - 1.96 * error[i], gain[i] + 1.96 * error[i]
            row |= {f"{prefix}gain": float(gain[i]), f"{prefix}gain_low": float(low), f"{prefix}gain_high": float(high)}
            row |= {f"{prefix}gain_p": float(p[i]), f"{prefix}verdict": verdict}
            row |= {} if prefix else {"detectable": float(2.8 * error[i])}
    off = 1.96 * float(np.sqrt((gain.var() + np.mean(error**2)) / len(gain)))
    return {
        "clients": len(gain),
        "helped": int((certain & (gain > 0)).sum()),
        "harmed": int((certain & (gain < 0)).sum()),
        "undecided": int((~certain).sum()),
        "mean": {"estimate": float(gain.mean()), "low": float(gain.mean()) - off, "high": float(gain.mean()) + off},
        "basis": "rows" if len(runs) == 1 else "splits" if runs[0].summary["splits"] > 1 else "seeds",
    }


def page_verdicts(run: RunRecord) -> dict[str, str]:
    """What a page says of each client: its own verdict where that holds among all of them, after Holm's correction."""
    certain = _holm(np.array([row["gain_p"] for row in run.clients]))
    rows = zip(run.clients, certain, strict=True)
    return {str(row["client"]): str(row["verdict"]) if holds else "cannot tell" for row, holds in rows}


def _holm(p: np.ndarray) -> np.ndarray:
    """Which of these hold together at 95%: the smallest of n times n, the next times n - 1, never below one before."""
    order = np.argsort(p)
    certain = np.zeros(len(p), bool)
    certain[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)) < 0.05
    return certain


def _statistics(column: list[float], weights: list[float], higher: bool) -> dict[str, float]:
    values = np.sort(np.array(column))[:: 1 if higher else -1]
    tenth = max(1, math.ceil(len(values) / 10))
    return {
        "mean": float(values.mean()),
        "size_weighted_mean": float(np.average(column, weights=weights)),
        "std": float(values.std()),
        "worst10": float(values[:tenth].mean()),
        "best10": float(values[-tenth:].mean()),
        "pooled": float(np.average(column, weights=weights)),
    }
