"""The parts of the page that need no script: tables and configs as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from polyfed.core.files import as_toml
from polyfed.report import fairness, numbers
from polyfed.report.methods import WORSE, Method, Task
from polyfed.report.numbers import MISSING
from polyfed.report.table import FEWER, Table, comparison_table

COLOURS = 8  # the palette in report.css

_QUALITY = {
    "mean": "Mean {metric}",
    "gain": "Gain over alone",
    "helped": "Helps",
    "harmed": "Harms",
    "undecided": "Cannot tell",
    "worst10": "Worst 10%",
    "best10": "Best 10%",
    "size_weighted_mean": "Size-weighted mean",
    "pooled": "Pooled over all rows",
}
_COST = {"bits_up": "Sent by all clients", "bits_down": "Received by them", "seconds": "Time", "epsilon": "Epsilon"}
_MODEL_NAMES = {
    "constant": "Constant",
    "alone": "Alone",
    "global": "Global model",
    "finetuned": "Global, fine-tuned",
    "personal": "Personal model",
}


def toggles(methods: Sequence[Method]) -> str:
    """A button per method; pressing it hides the method everywhere."""
    return "".join(
        f'<button type="button" class="toggle" data-method="{i}" aria-pressed="true" title="{escape(method.label)}">'
        f"{swatch(i)}<span>{escape(method.label)}</span></button>"
        for i, method in enumerate(methods)
    )


def swatch(index: int) -> str:
    """A method's colour; the second eight methods have the colours of the first in round swatches."""
    shape = " round" if index // COLOURS % 2 else ""
    return f'<i class="swatch{shape}" style="--c: var(--m{index % COLOURS})"></i>'


def methods_table(methods: Sequence[Method]) -> str:
    """How well each method serves the clients, whom it helps and harms, and the yardsticks below."""
    table = comparison_table([run for method in methods for run in method.runs])
    return _chosen(methods, table, _QUALITY) + (
        "<p class='note'>Helps, harms: clients for whom that is certain at 95%, all of them taken together. "
        "The gain is the mean over clients with its 95% interval. Bold: the best value, and every value that paired "
        "runs cannot tell from it; nothing is bold where that would be all, or where there is one run each.</p>"
    )


def cost_table(methods: Sequence[Method]) -> str:
    """What each method sent, how long it took and, where there is privacy, what it spent."""
    table = comparison_table([run for method in methods for run in method.runs])
    return _chosen(methods, Table(table.columns, table.lines[: len(methods)], table.is_share), _COST)


def models_table(methods: Sequence[Method]) -> str:
    """What each step is worth: the mean of every model that was measured, side by side."""
    models = [model for model in _MODEL_NAMES if any(method.mean(model) is not None for method in methods)]
    if len(models) < 2:
        return ""
    body = []
    for i, method in enumerate(methods):
        means = [value_text(method.task, method.mean(model)) for model in models]
        marked = [
            f'<td class="deployed">{t}</td>' if m == method.deployed else f"<td>{t}</td>"
            for m, t in zip(models, means, strict=True)
        ]
        body.append(_row(i, escape(method.label), marked))
    task = methods[0].task
    return (
        f"<h3>What each step is worth</h3><p>Mean {escape(task.name)} of every model that was measured; "
        "the one that clients deploy is underlined.</p>"
        + html_table(["Method", *(_MODEL_NAMES[model] for model in models)], body)
    )


def fairness_table(methods: Sequence[Method]) -> str:
    """How evenly the clients are served, by every model that is deployed or shared."""
    table = fairness.fairness_table([run for method in methods for run in method.runs])
    if table is None:
        return ""
    body = []
    for i, (method, _) in enumerate(fairness.lines(methods)):
        texts = [_spread_below(table.text(i, j)) for j in range(len(table.columns))]
        cells = [f'<td class="best">{t}</td>' if table.is_best(i, j) else f"<td>{t}</td>" for j, t in enumerate(texts)]
        body.append(_row(methods.index(method), escape(table.lines[i].name), cells))
    return (
        f"<p>The {escape(methods[0].task.name)} over {over(methods)}. The smallest and the largest client go by "
        "training rows; a Gini index of 0 and a Jain index of 1 mean that all are served alike. A client’s weight is "
        "its share of all the server’s averages.</p>" + html_table(table.headers, body)
    )


def over(methods: Sequence[Method]) -> str:
    """Which clients the figures are about."""
    return "; ".join(dict.fromkeys(_over(method) for method in methods))


def _over(method: Method) -> str:
    if not method.sample:
        return method.over or "all clients"
    return f"a sample of {method.sample}" + (f", of which {method.over} have the metric" if method.over else "")


def configs(methods: Sequence[Method]) -> str:
    """The resolved config of every run, folded away; the runs of a method together."""
    blocks = []
    for i, method in enumerate(methods):
        own = []
        for run in method.runs:
            counts = [(run.summary.get(key), key) for key in ("rounds", "parameters")]
            split = [f"split {run.summary['split']}"] if run.summary.get("splits", 1) > 1 else []
            facts = [
                *split,
                f"seed {run.seed}",
                *(f"{number:,} {key}" for number, key in counts if isinstance(number, int)),
            ]
            types = [run.summary[key] for key in ("dtype", "compute") if run.summary.get(key)]
            facts += [" with products in ".join(dict.fromkeys(types))] if types else []
            summary = f"{swatch(i)}{escape(method.label)} <small>{escape(' · '.join(facts))}</small>"
            text = escape(as_toml(run.config).strip())
            own.append(f'<details data-method="{i}"><summary>{summary}</summary><pre>{text}</pre></details>')
        if len(own) > 1:
            all_of_it = f"{swatch(i)}{escape(method.label)} <small>{len(own)} runs</small>"
            own = [f'<details data-method="{i}"><summary>{all_of_it}</summary>{"".join(own)}</details>']
        blocks += own
    return "".join(blocks)


def value_text(task: Task, value: float | None) -> str:
    return numbers.percent(value) if task.is_share else numbers.significant(value)


def html_table(heads: Sequence[str], body: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _chosen(methods: Sequence[Method], table: Table, heads: dict[str, str]) -> str:
    """Some columns of the comparison, with units that suit each value."""
    task = methods[0].task
    keys = [column.key.removeprefix(task.prefix) for column in table.columns]
    chosen = [(keys.index(key), key) for key in heads if key in keys]
    chosen = [(j, key) for j, key in chosen if any(line.cells[j].mean is not None for line in table.lines)]
    body = []
    for i, line in enumerate(table.lines):
        cells = []
        for j, key in chosen:
            text = _cell_text(table, i, j, key, task)
            cells.append(f'<td class="best">{text}</td>' if table.is_best(i, j) else f"<td>{text}</td>")
        runs = f" <small>{len(line.runs)} runs</small>" if len(line.runs) > 1 and i < len(methods) else ""
        bad = [f'<em class="bad">{mark}</em>' for mark in line.marks if mark in ("diverged", "test labels leak", WORSE)]
        few = [f"<small>{mark}</small>" for mark in line.marks if mark.startswith(FEWER) and "gain" in heads]
        name = f"{escape(line.label)}{runs}{' '.join(['', *bad, *few])}"
        body.append(_row(i, name, cells) if i < len(methods) else _yardstick(name, cells))
    return html_table(["Method", *(heads[key].format(metric=task.name) for _, key in chosen)], body)


def _cell_text(table: Table, row: int, column: int, key: str, task: Task) -> str:
    mean = table.lines[row].cells[column].mean
    if mean is None:
        return MISSING
    if key in ("bits_up", "bits_down"):
        return numbers.bits(mean)
    if key == "seconds":
        return numbers.duration(mean)
    text = _spread_below(table.text(row, column))
    if not task.is_share or key in ("helped", "harmed", "undecided", "epsilon"):
        return text
    value, space, rest = text.partition(" ")
    return f"{value}{' points' if key == 'gain' else '%'}{space}{rest}"


def _spread_below(text: str) -> str:
    """The spread, or the interval, in small letters under the value."""
    value, _, rest = text.partition(" ")
    return f"{escape(value)} <small>{escape(rest.strip('()'))}</small>" if rest else escape(value)


def _row(index: int, name: str, cells: Sequence[str]) -> str:
    return f'<tr data-method="{index}"><th scope="row">{swatch(index)}{name}</th>{"".join(cells)}</tr>'


def _yardstick(name: str, cells: Sequence[str]) -> str:
    return f'<tr class="yardstick"><th scope="row">{name}</th>{"".join(cells)}</tr>'
