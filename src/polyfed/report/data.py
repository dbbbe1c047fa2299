"""The numbers behind the page's charts, as a structure that becomes JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypedDict

import numpy as np

from polyfed.core.files import JsonObject
from polyfed.engine.fairness import OVER_ROUNDS
from polyfed.report.gains import ClientGain
from polyfed.report.methods import MODELS, SPLITS, Method, Task
from polyfed.report.numbers import decimals_of, finite, strict_average

AXES = ("round", "iterations", "bits_up", "bits_down", "seconds")
SHARE_LINES = 8  # how many clients have a line of their own in the chart of own shares
CURVE_POINTS = 1000  # a longer curve is thinned evenly; no screen shows more

Number = float | int | None
NOTHING = ClientGain(None, None, None, None)

_NAMES = {
    "objective": "Objective",
    "gap": "Gap to the reference solution",
    "grad_norm2": "Squared gradient norm",
}


class Curves(TypedDict):
    """A method over the rounds."""

    axes: dict[str, list[Number]]
    curves: dict[str, dict[str, list[Number]]]
    """of each: the mean over runs and, where there are several, the lowest and the highest"""


def page_data(methods: Sequence[Method], focus: Method) -> JsonObject:
    """All that the page's script draws. Clients are listed once; each method has its values in that order."""
    task = methods[0].task
    clients = list(dict.fromkeys(name for method in methods for name in method.clients))
    drawn = [_curves(method) for method in methods]
    every = {key for method in drawn for key in method["curves"]}
    # Fairness over the rounds has a chart of its own.
    keys = [key for key in every if not key.endswith(OVER_ROUNDS)]
    return {
        "metric": task.metric,
        "label": task.label,
        "split": task.split,
        "share": task.is_share,
        "from0to1": task.largest == 1,
        "focus": methods.index(focus),
        "over": "the clients of the sample" if any(method.sample for method in methods) else "all clients",
        "clients": clients,
        "alone": _reference(methods, clients),
        "options": [_option(key, task) for key in sorted(keys, key=lambda key: _rank(key, task))],
        "fair": _fair(every, task),
        "methods": [{**_method(method, clients), **curves} for method, curves in zip(methods, drawn, strict=True)],
    }


def _method(method: Method, clients: Sequence[str]) -> dict[str, object]:
    values = {model: _aligned(method, method.values(model), clients) for model in MODELS}
    values["deployed"] = values[method.deployed]
    return {
        "label": method.label,
        "runs": len(method.runs),
        "rows": {
            split: _aligned(method, method.column(name), clients)
            for split, name in (("all", "rows"), *((split, f"{split}_rows") for split in SPLITS))
        },
        "positives": _aligned(method, method.column("positives"), clients),
        "values": {model: column for model, column in values.items() if _has_values(column)},
        **_gains(method, clients),
        "own_share": _aligned(method, method.column("own_share"), clients),
        "weights": _aligned(method, method.column("server_weight"), clients),
        "shares": _shares(method, clients),
    }


def _gains(method: Method, clients: Sequence[str]) -> dict[str, object]:
    """Each client's gain over going alone with its interval and its verdict, and how many decimals these deserve."""
    judged = method.gains.clients if method.gains is not None else [NOTHING] * len(method.clients)
    reaches = [client.interval for client in judged if client.interval is not None]
    verdicts = dict(zip(method.clients, (client.verdict for client in judged), strict=True))

    def figures(of: Callable[[ClientGain], float | None]) -> list[Number]:
        return _aligned(method, [finite(of(client)) for client in judged], clients)

    return {
        "gains": figures(lambda client: client.gain),
        "low": figures(lambda client: client.interval.low if client.interval else None),
        "high": figures(lambda client: client.interval.high if client.interval else None),
        "detectable": figures(lambda client: _below(client.detectable, method.task.largest)),
        "verdicts": [verdicts.get(name) for name in clients],
        "decimals": int(median(decimals_of(interval) for interval in reaches)) if reaches else 3,
    }


def _below(detectable: float | None, largest: float) -> float | None:
    """None where even the largest difference could not have been seen."""
    return detectable if detectable is not None and detectable < largest else None


def _shares(method: Method, clients: Sequence[str]) -> dict[str, object] | None:
    """How the own shares moved, as means over the runs: median, first and last decile, and some clients by name."""
    logs = [run.shares for run in method.runs if run.shares is not None]
    rounds = _thin(_shared_rounds(method, max((log.rounds[0] for log in logs), default=0)))
    if len(logs) < len(method.runs) or len(rounds) < 2:
        return None
    order = [[log.clients.index(name) for name in method.clients if name in log.clients] for log in logs]
    if any(len(places) < len(method.clients) for places in order):
        return None
    table = np.mean([log.at(rounds)[:, places] for log, places in zip(logs, order, strict=True)], axis=0)
    low, middle, high = np.quantile(table, (0.1, 0.5, 0.9), axis=1)
    ranked = np.argsort(table[-1], kind="stable")
    chosen = ranked[np.unique(np.linspace(0, len(ranked) - 1, SHARE_LINES).round().astype(int))]
    return {
        "rounds": [_exact(at) for at in rounds],
        "band": [[_short(value) for value in column.tolist()] for column in (low, middle, high)],
        "lines": [[clients.index(method.clients[i]), [_short(v) for v in table[:, i].tolist()]] for i in chosen],
    }


def _shared_rounds(method: Method, first: float) -> list[float]:
    """The rounds that every run was evaluated at, from `first` on."""
    seen = [{finite(row.get("round")) for row in run.history} for run in method.runs]
    return sorted(at for at in set.intersection(*seen) if at is not None and at >= first)


def _curves(method: Method) -> Curves:
    """Axes and curves over the rounds that every run has: the mean, and lowest and highest where runs differ."""
    by_round = [{finite(row.get("round")): row for row in run.history} for run in method.runs]
    shared = _thin(_shared_rounds(method, 0))
    columns = {name for rows in by_round for row in rows.values() for name in row}
    axes = {name: [_exact(strict_average(_across(by_round, at, name))) for at in shared] for name in AXES}
    curves: dict[str, dict[str, list[Number]]] = {}
    for name in sorted(columns - {*AXES, "evaluated_clients"}):
        key = _curve_key(name, method.deployed, columns)
        across = [_across(by_round, at, name) for at in shared]
        mean = [_short(strict_average(values)) for values in across]
        if key is None or not _has_values(mean):
            continue
        curves[key] = {"mean": mean}
        if len(method.runs) > 1:
            curves[key]["low"] = [_extreme(values, min) for values in across]
            curves[key]["high"] = [_extreme(values, max) for values in across]
    return {"axes": axes, "curves": curves}


def _across(
    by_round: Sequence[Mapping[float | None, Mapping[str, object]]], at: float, name: str
) -> list[float | None]:
    """A column's value at a round, in each run."""
    return [finite(rows[at].get(name)) for rows in by_round]


def _extreme(values: Sequence[float | None], pick: Callable[[Sequence[float]], float]) -> Number:
    """The least or the greatest value; None where one is missing."""
    there = [value for value in values if value is not None]
    return _short(pick(there)) if len(there) == len(values) else None


def _curve_key(column: str, deployed: str, columns: set[str]) -> str | None:
    """The curve that a column of the history belongs to: what a method deploys is named `deployed_...` for all."""
    model, _, rest = column.partition("_")
    if model not in MODELS:
        return column
    shown = deployed if any(name.startswith(f"{deployed}_") for name in columns) else "global"
    return f"deployed_{rest}" if model == shown else column


def _option(key: str, task: Task) -> dict[str, object]:
    """A curve's name in the list, and how its values are written."""
    model, split, metric = [*key.split("_", 2), "", ""][:3]
    if split not in SPLITS:
        name = _NAMES.get(key, key.replace("_", " ").capitalize())
        return {"key": key, "name": name, "axis": name, "share": False}
    words = {"deployed": "deployed model", "finetuned": "fine-tuned model", "alone": "going alone"}
    axis = f"{split.capitalize()} {_metric_label(metric, task)}"
    return {
        "key": key,
        "name": f"{axis}, {words.get(model, f'{model} model')}",
        "axis": axis,
        "share": _is_share(metric, task),
    }


def _fair(keys: Iterable[str], task: Task) -> dict[str, object] | None:
    """The metric whose smallest and largest client the histories have: the shown one, or else another."""
    stems = {stem.split("_", 1)[1] for key in keys if (stem := key.removesuffix("_smallest")) != key}
    if not stems:
        return None
    stem = min(stems, key=lambda stem: (stem != f"{task.split}_{task.metric}", not stem.startswith(task.split), stem))
    split, metric = stem.split("_", 1)
    return {"stem": stem, "label": f"{split} {_metric_label(metric, task)}", "share": _is_share(metric, task)}


def _metric_label(metric: str, task: Task) -> str:
    return task.label if metric == task.metric else metric.replace("_", " ")


def _is_share(metric: str, task: Task) -> bool:
    """Of the metrics that a history has besides the shown one, accuracy alone is a share."""
    return task.is_share if metric == task.metric else metric == "accuracy"


def _rank(key: str, task: Task) -> tuple[int, str]:
    first = [
        f"deployed_{task.split}_{task.metric}",
        f"deployed_{task.split}_loss",
        "deployed_train_loss",
        "objective",
        "gap",
        "grad_norm2",
        f"deployed_train_{task.metric}",
    ]
    if key in first:
        return first.index(key), key
    return len(first) + ("deployed" not in key), key


def _reference(methods: Sequence[Method], clients: Sequence[str]) -> list[float | None] | None:
    """Each client's value of going alone; None unless all methods that measured it agree."""
    measured = [column for m in methods if _has_values(column := _aligned(m, m.values("alone"), clients))]
    if not measured or any(column != measured[0] for column in measured):
        return None
    return measured[0]


def _aligned(method: Method, values: Sequence[float | None], clients: Sequence[str]) -> list[float | None]:
    by_name = dict(zip(method.clients, values, strict=True))
    return [_short(by_name.get(name)) for name in clients]


def _thin(rounds: list[float]) -> list[float]:
    if len(rounds) <= CURVE_POINTS:
        return rounds
    last = len(rounds) - 1
    return [rounds[(i * last) // (CURVE_POINTS - 1)] for i in range(CURVE_POINTS)]


def _has_values(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _short(value: float | None) -> Number:
    """Rounded to six significant digits, more than a screen can show."""
    return None if value is None else _exact(float(f"{value:.6g}"))


def _exact(value: float | None) -> Number:
    """Without a decimal point where it is whole."""
    return int(value) if value is not None and value == int(value) else value
