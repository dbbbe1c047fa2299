"""What to know before believing a figure, high on the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape

from polyfed.report.constant import shortfall
from polyfed.report.methods import Method
from polyfed.studies.run_directory import RunRecord

NUMBERS = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")
SEEN = 6  # more of them are folded away


def cautions(methods: Sequence[Method]) -> str:
    """Runs that diverged, test labels that leak, methods below the constant predictor, and what the runs warn of."""
    lines = [line for method in methods for line in _of_method(method)] + _worse(methods)
    lines += [f"{escape(caution)}." for caution in _of_runs(methods)]
    lines += _undefined(methods) + _other_runs(methods)
    lines = list(dict.fromkeys(lines))
    items = [f"<li>{line}</li>" for line in lines]
    if not items:
        return ""
    more = len(items) - SEEN
    rest = (
        f"<li><details><summary>{more} more</summary><ul>{''.join(items[SEEN:])}</ul></details></li>"
        if more > 0
        else ""
    )
    return f'<ul class="warnings">{"".join(items[:SEEN])}{rest}</ul>'


def _of_method(method: Method) -> list[str]:
    lines = []
    for run in method.runs:
        name = escape(f"{method.label} (seed {run.seed})" if len(method.runs) > 1 else method.label)
        if run.summary.get("diverged"):
            lines.append(f"<strong>{name} diverged.</strong> Its figures show where it went; they are not a result.")
        leak = _leak(method, run)
        if leak:
            lines.append(
                f"<strong>{name}: test labels leak.</strong> {leak} adapted on test rows, the published protocol "
                "of some papers; those test figures say nothing about unseen rows."
            )
        excluded = run.summary.get("excluded") or {}
        if excluded:
            most = sorted(excluded.items(), key=lambda item: (-int(item[1]), item[0]))
            listed = ", ".join(f"{escape(client)} ({int(count)}×)" for client, count in most[:5])
            more = f" and {len(most) - 5} more" if len(most) > 5 else ""
            lines.append(f"<strong>{name}:</strong> updates that were not finite were left out: {listed}{more}.")
    return lines


def _worse(methods: Sequence[Method]) -> list[str]:
    """The methods that a constant prediction beats, in one sentence."""
    worse = {method.label: shortfall(method, method.deployed) for method in methods if method.worse_than_constant()}
    if not worse:
        return []
    several = len(worse) > 1
    who = " and ".join(filter(None, (", ".join(list(worse)[:-1]), list(worse)[-1])))
    what = "; ".join(f"{label} has {words}" if several else f"it has {words}" for label, words in worse.items())
    return [
        f"<strong>{escape(who)} {'are' if several else 'is'} worse than the constant predictor</strong>, which "
        f"predicts the same for every row of a client: {escape(what)}. {'None of them is' if several else 'It is not'} "
        "to be used as it is."
    ]


def _leak(method: Method, run: RunRecord) -> str:
    if run.summary.get("adapted_on_test"):
        return "What it deploys was"
    adapts = (run.config.get("run") or {}).get("adapt_on_test") and method.mean("finetuned") is not None
    return "Its fine-tuned model was" if adapts else ""


def _of_runs(methods: Sequence[Method]) -> list[str]:
    """What the runs say of their data and of themselves; the method is named where not all say so."""
    by_method = [_folded(method.runs) for method in methods]
    return [
        caution if all(caution in others for others in by_method) else f"{method.label}: {caution}"
        for method, own in zip(methods, by_method, strict=True)
        for caution in own
    ]


def _folded(runs: Sequence[RunRecord]) -> list[str]:
    """What the runs of a method say, once each. Sentences that differ from run to run in numbers alone are one."""
    said = [list(dict.fromkeys(str(c).rstrip(".") for c in run.summary.get("cautions") or [])) for run in runs]
    kinds: dict[str, list[str]] = {}
    for caution in (caution for own in said for caution in own):
        kinds.setdefault(_kind(caution), []).append(caution)
    repeated = {kind for own in said for kind, times in Counter(map(_kind, own)).items() if times > 1}
    lines: list[str] = []
    for kind, sentences in kinds.items():
        # Sentences of a kind in one run are about several things.
        counts = Counter(sentences) if kind in repeated else {sentences[0]: len(sentences)}
        for caution, count in counts.items():
            by_all = sentences.count(caution) == len(runs)
            lines.append(caution if by_all else f"{caution} ({count} of {len(runs)} runs)")
    return lines


def _kind(caution: str) -> str:
    """A sentence without its numbers."""
    return NUMBERS.sub("#", caution)


def _other_runs(methods: Sequence[Method]) -> list[str]:
    """Methods that did not have the same seeds and splits differ by these too."""
    runs = {tuple((run.seed, run.summary.get("split")) for run in method.runs) for method in methods}
    if len(runs) == 1:
        return []
    return [
        "The methods were not run with the same seeds and splits, so these are in the differences between them too."
    ]


def _undefined(methods: Sequence[Method]) -> list[str]:
    """Clients without the metric, by name: they are in no mean and no count."""
    lines = []
    for who, names in without_metric(methods):
        ends = "count in the means of the others alone" if who.endswith("runs") else "count in no mean"
        lines.append(f"<strong>{escape(who)}</strong> and {ends}: {escape(names)}.")
    return lines


def without_metric(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """How many clients have no such metric, in all runs or in some, and their names."""
    clients = {name for method in methods for name in method.clients}
    everywhere = dict.fromkeys(
        name for method in methods for name, runs in method.undefined.items() if runs == len(method.runs)
    )
    somewhere = dict.fromkeys(name for method in methods for name in method.undefined if name not in everywhere)
    lines = []
    for names, ending in ((list(everywhere), ""), (list(somewhere), " in some runs")):
        if names:
            listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            verb = "has" if len(names) == 1 else "have"
            what = f"no {methods[0].task.name}{ending}"
            lines.append((f"{len(names):,} of {_clients(len(clients))} {verb} {what}", listed))
    return lines


def _clients(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"
