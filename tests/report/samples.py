"""Run records with made-up numbers, as the engine would leave them behind."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

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


MODELS = ("global", "personal", "alone", "finetuned")


def fair(run: RunRecord, weights: list[float] | None = None) -> RunRecord:
    """The run with what is measured of fairness: in its history, its summary, and a weight for each client."""
    rows = np.array([row["train_rows"] for row in run.clients])
    shares = np.full(len(rows), 1 / len(rows)) if weights is None else np.array(weights)
    for row, share in zip(run.clients, shares, strict=True):
        row["server_weight"] = float(share)
    for model, splits in run.summary["models"].items():
        for split, metrics in splits.items():
            for metric, found in metrics.items():
                values = np.array([row[f"{model}_{split}_{metric}"] for row in run.clients])
                found |= fairness.disparity(values, rows)
                for line in run.history:
                    if f"{model}_{split}_{metric}" in line and split == "test" and metric != "loss":
                        names = {f"{model}_{split}_{metric}_{name}": found[name] for name in fairness.OVER_ROUNDS}
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
    models: tuple[str, ...] = MODELS,
    splits: tuple[str, ...] = ("train", "validation", "test"),
    bits_per_round: int = 640_000,
    own_share: bool = False,
    diverged: bool = False,
    **summary: Any,
) -> RunRecord:
    """A run whose personal model is about `lift` better than going alone; numbers depend on the arguments alone."""
    names = [f"Site {i + 1}" for i in range(clients)] if isinstance(clients, int) else clients
    draw = np.random.default_rng([seed, sum(map(ord, label)), len(names)])
    base = np.random.default_rng([7, len(names)])
    ability, size = base.uniform(0.55, 0.85, len(names)), base.integers(20, 900, len(names))
    shift = {"alone": 0.0, "global": lift / 2, "personal": lift, "finetuned": 0.8 * lift}
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        row: dict[str, Any] = {"client": name, "train_rows": float(size[i]), "validation_rows": 10.0, "test_rows": 20.0}
        row["own_share"] = float(draw.beta(2, 3)) if own_share else ""
        for model in models:
            noise = 0.0 if model == "alone" else draw.normal(0, 0.06 if model == "global" else 0.03)
            good = min(ability[i] + (0 if model == "alone" else shift[model] + noise), 0.995)
            for split in splits:
                row[f"{model}_{split}_{metric}"] = float(good if metric == "accuracy" else 1.2 - good)
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
                start = 0.1 if metric == "accuracy" else 3.0
                line[f"{model}_{split}_{metric}"] = start + (end - start) * progress
                line[f"{model}_{split}_loss"] = 2.3 - 1.7 * progress
        history.append(line)
    return make_record(
        label,
        rows,
        history,
        algorithm=algorithm or label.lower(),
        seed=seed,
        metric=metric,
        diverged=diverged,
        **summary,
    )


def make_record(
    label: str, rows: list[dict[str, Any]], history: list[dict[str, Any]], *, seed: int = 0, metric: str, **more: Any
) -> RunRecord:
    """A record around given client rows; its summary is computed from them."""
    models: dict[str, Any] = {}
    for model in MODELS:
        for split in ("train", "validation", "test"):
            for name in (metric, "loss"):
                column: list[Any] = [row.get(f"{model}_{split}_{name}") for row in rows]
                if rows and all(isinstance(value, float) for value in column):
                    weights = [row["train_rows"] for row in rows]
                    models.setdefault(model, {}).setdefault(split, {})[name] = _statistics(column, weights, name)
    last = history[-1] if history else {}
    summary = {
        "label": label,
        "algorithm": label.lower(),
        "seed": seed,
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
        "better_than_alone": _share(rows, metric, "alone"),
        "better_than_global": _share(rows, metric, "global"),
        "figure": f"the personal model on every client's test rows after round {len(history) - 1}",
    }
    config = {
        "data": {"name": "synthetic", "clients": len(rows), "alpha": 0.5},
        "problem": {"model": "mlp", "hidden": [200, 200], "l2": 1e-4},
        "algorithm": {"name": label.lower(), "lr": 0.1},
        "run": {"rounds": len(history) - 1, "seed": seed},
    }
    return RunRecord(Path(f"runs/{seed}"), config, history, rows, summary | more)


def _statistics(column: list[float], weights: list[float], metric: str) -> dict[str, float]:
    values = np.sort(np.array(column))[:: 1 if metric == "accuracy" else -1]
    tenth = max(1, math.ceil(len(values) / 10))
    return {
        "mean": float(values.mean()),
        "size_weighted_mean": float(np.average(column, weights=weights)),
        "std": float(values.std()),
        "worst10": float(values[:tenth].mean()),
        "best10": float(values[-tenth:].mean()),
    }


def _share(rows: list[dict[str, Any]], metric: str, other: str) -> float | None:
    pairs = [(row.get(f"personal_test_{metric}"), row.get(f"{other}_test_{metric}")) for row in rows]
    if not rows or not all(isinstance(a, float) and isinstance(b, float) for a, b in pairs):
        return None
    return float(np.mean([(a > b) if metric == "accuracy" else (a < b) for a, b in pairs]))  # type: ignore[operator]
