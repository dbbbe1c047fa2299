"""The parts of the page that need no script: tables, cards, notes and configs as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from polyfed.core.files import as_toml
from polyfed.report import fairness, numbers
from polyfed.report.methods import Method
from polyfed.report.numbers import MISSING, strict_average
from polyfed.report.table import Cell, comparison_table

COLOURS = 8  # the palette in report.css

_HEADS = {
    "mean": "Mean {metric}",
    "size_weighted_mean": "Size-weighted mean",
    "std": "Std over clients",
    "worst10": "Worst 10%",
    "best10": "Best 10%",
    "better_than_alone": "Better than alone",
    "better_than_global": "Better than global",
    "epsilon": "Epsilon",
    "bits_up": "Sent up",
    "bits_down": "Sent down",
    "seconds": "Time",
}  # headings of the comparison on the page; its cells name their own units
_MODEL_NAMES = {"personal": "personal", "global": "global", "finetuned": "fine-tuned", "alone": "alone"}


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


def warnings(methods: Sequence[Method]) -> str:
    """What to know before believing a figure: runs that diverged, test labels that leak, updates that were left out."""
    lines = []
    for method in methods:
        for run in method.runs:
            name = escape(f"{method.label} (seed {run.seed})" if len(method.runs) > 1 else method.label)
            if run.summary.get("diverged"):
                lines.append(
                    f"<strong>{name} diverged.</strong> Its figures show where it went; they are not a result."
                )
            if run.summary.get("adapted_on_test"):
                what = "What it deploys was"
            elif (run.config.get("run") or {}).get("adapt_on_test") and method.mean("finetuned") is not None:
                what = "Its fine-tuned model was"
            else:
                what = ""
            if what:
                lines.append(
                    f"<strong>{name}: test labels leak.</strong> {what} adapted on test rows, the published protocol "
                    "of some papers; those test figures say nothing about unseen rows."
                )
            excluded = run.summary.get("excluded") or {}
            if excluded:
                most = sorted(excluded.items(), key=lambda item: (-int(item[1]), item[0]))
                listed = ", ".join(f"{escape(client)} ({int(count)}×)" for client, count in most[:5])
                more = f" and {len(most) - 5} more" if len(most) > 5 else ""
                lines.append(f"<strong>{name}:</strong> updates that were not finite were left out: {listed}{more}.")
    return f'<ul class="warnings">{"".join(f"<li>{line}</li>" for line in lines)}</ul>' if lines else ""


def cards(method: Method) -> str:
    """The figures of the method that the headline is about."""
    task, model = method.task, method.deployed
    mean, alone = method.mean(model), method.mean("alone")
    worst = strict_average(method.seed_statistics(model, "worst10"))
    worst_alone = strict_average(method.seed_statistics("alone", "worst10"))
    made = [
        _card(f"Mean {task.name}", value_text(method, mean), _compared(method, mean, alone)),
        _card("Worst 10% of clients", value_text(method, worst), _compared(method, worst, worst_alone)),
        _share_card("Better than alone", method, "alone", "better_than_alone"),
        _share_card("Better than global", method, "global", "better_than_global"),
        _card(
            "Sent by all clients",
            numbers.bits(strict_average(method.figures("bits_up"))),
            f"{numbers.bits(strict_average(method.figures('bits_down')))} received",
        ),
        _card("Time", numbers.duration(strict_average(method.figures("seconds"))), _compilation(method)),
    ]
    return "".join(made)


def methods_table(methods: Sequence[Method]) -> str:
    """The comparison table with units that suit each value; the best of a quality column is bold."""
    table = comparison_table([run for method in methods for run in method.runs])
    task = methods[0].task
    heads = [_HEADS[column.key.removeprefix(task.prefix)].format(metric=task.name) for column in table.columns]
    body = []
    for i, method in enumerate(methods):
        cells = []
        for j, (column, cell) in enumerate(zip(table.columns, table.cells[i], strict=True)):
            text = _cell_text(method, column.key, cell)
            cells.append(f'<td class="best">{text}</td>' if table.is_best(i, j) else f"<td>{text}</td>")
        mark = ' <em class="bad">diverged</em>' if method.diverged else ""
        mark += ' <em class="bad">test labels leak</em>' if method.leaks else ""
        seeds = f" <small>{len(method.runs)} seeds</small>" if len(method.runs) > 1 else ""
        body.append(_row(i, f"{escape(method.label)}{seeds}{mark}", cells))
    return _table(["Method", *heads], body)


def models_table(methods: Sequence[Method]) -> str:
    """What each step is worth: the mean of every model that was measured, side by side."""
    models = [m for m in ("alone", "global", "finetuned", "personal") if any(x.mean(m) is not None for x in methods)]
    if len(models) < 2:
        return ""
    names = {
        "alone": "Alone",
        "global": "Global model",
        "finetuned": "Global, fine-tuned",
        "personal": "Personal model",
    }
    body = []
    for i, method in enumerate(methods):
        means = [value_text(method, method.mean(model)) for model in models]
        marked = [
            f'<td class="deployed">{t}</td>' if m == method.deployed else f"<td>{t}</td>"
            for m, t in zip(models, means, strict=True)
        ]
        body.append(_row(i, escape(method.label), marked))
    task = methods[0].task
    return (
        f"<h3>What each step is worth</h3><p>Mean {escape(task.name)} of every model that was measured; "
        "the one that clients deploy is underlined.</p>" + _table(["Method", *(names[m] for m in models)], body)
    )


def fairness_section(methods: Sequence[Method]) -> str:
    """How evenly the clients are served, by every model that is deployed or shared."""
    table = fairness.fairness_table([run for method in methods for run in method.runs])
    if table is None:
        return ""
    body = []
    for i, (method, _) in enumerate(fairness.lines(methods)):
        texts = [escape(text) for text in table.rows[i][1:]]
        cells = [f'<td class="best">{t}</td>' if table.is_best(i, j) else f"<td>{t}</td>" for j, t in enumerate(texts)]
        body.append(_row(methods.index(method), escape(table.labels[i]), cells))
    task = methods[0].task
    return (
        f"<p>The {escape(task.name)} over {_over(methods)}. The smallest and the largest client go by training rows; "
        "a Gini index of 0 and a Jain index of 1 mean that all are served alike. A client’s weight is its share of all "
        "the server’s averages.</p>" + _table(table.headers, body)
    )


def notes(methods: Sequence[Method]) -> str:
    """What was measured, so that no figure has to be guessed at."""
    task = methods[0].task
    lines = [
        f"Every figure is the <b>{escape(task.name)}</b> of the model that a client deploys, after the last round "
        f"(not the best one), over {_over(methods)}, those included that were absent from some rounds.",
        "The worst and best 10% are means over the tenth of the clients with the "
        + ("largest and smallest error." if task.lower_is_better else "lowest and highest accuracy."),
        "<b>Alone</b> is purely local training of the same model with the same budget; a client’s gain is "
        + ("how much lower its error is" if task.lower_is_better else "the difference in percentage points")
        + ", so that above zero always means better off.",
        "Bits are counted from what travels: up is from all clients to the server, down is back to them.",
    ]
    if task.metric == "error":
        lines.append("The error is the mean squared error.")
    if any(len(method.runs) > 1 for method in methods):
        lines.append(
            "Where a method was run with several seeds, tables show the mean ± standard deviation over seeds, "
            "curves the mean with a band from the lowest to the highest seed, and client figures are means over seeds. "
            "The headline and the cards count clients by those means; the table's shares are counted seed by seed, "
            "and can differ."
        )
    listed = f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
    if len({_figure(method) for method in methods}) == 1:
        return f"{listed}<p>In a sentence: {escape(_figure(methods[0]))}.</p>"
    deployed = "".join(f"<li><b>{escape(method.label)}:</b> {escape(_figure(method))}</li>" for method in methods)
    return f"{listed}<h3>Per method</h3><ul>{deployed}</ul>"


def _over(methods: Sequence[Method]) -> str:
    """Which clients the figures are about."""
    samples = dict.fromkeys(method.sample or "all clients" for method in methods)
    return "; ".join(f"a sample of {sample}" if sample != "all clients" else sample for sample in samples)


def _figure(method: Method) -> str:
    """The run's own sentence on what was measured."""
    otherwise = f"the {_MODEL_NAMES[method.deployed]} model on every client's {method.task.split} rows, last round"
    return str(method.runs[0].summary.get("figure") or otherwise)


def configs(methods: Sequence[Method]) -> str:
    """The resolved config of every run, folded away."""
    blocks = []
    for i, method in enumerate(methods):
        for run in method.runs:
            counts = [(run.summary.get(key), key) for key in ("rounds", "parameters")]
            facts = [f"seed {run.seed}", *(f"{number:,} {key}" for number, key in counts if isinstance(number, int))]
            types = [run.summary[key] for key in ("dtype", "compute") if run.summary.get(key)]
            facts += [" with products in ".join(dict.fromkeys(types))] if types else []
            summary = f"{swatch(i)}{escape(method.label)} <small>{escape(' · '.join(facts))}</small>"
            text = escape(as_toml(run.config).strip())
            blocks.append(f'<details data-method="{i}"><summary>{summary}</summary><pre>{text}</pre></details>')
    return "".join(blocks)


def value_text(method: Method, value: float | None) -> str:
    return numbers.percent(value) if method.task.is_share else numbers.significant(value)


def _compared(method: Method, value: float | None, alone: float | None) -> str:
    if value is None or alone is None:
        return ""
    if method.task.is_share:
        return f"{numbers.points(value - alone)} points against alone"
    return f"{numbers.significant(alone)} alone"


def _share_card(name: str, method: Method, reference: str, key: str) -> str:
    gains = [gain for gain in method.gains_over(reference) if gain is not None]
    share = strict_average(method.figures(key))
    if method.deployed == reference or not gains:
        return _card(name, numbers.percent(share, 0), "of clients") if share is not None else ""
    better = sum(gain > 0 for gain in gains)
    same = sum(gain == 0 for gain in gains)
    extra = _worse(len(gains) - better - same, same)
    if len(gains) >= 100:
        return _card(name, numbers.percent(better / len(gains)), f"{better:,} of {len(gains):,} clients")
    return _card(name, f"{better} of {len(gains)}", extra)


def _worse(worse: int, same: int) -> str:
    text = f"{worse} worse off" if worse else "none worse off"
    return f"{text}, {same} unchanged" if same else text


def _card(name: str, value: str, note: str) -> str:
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(note)}</p></div>'


def _compilation(method: Method) -> str:
    seconds = strict_average(method.figures("compile_seconds"))
    if seconds is None:
        return ""
    return f"and {numbers.duration(seconds)} to compile" if seconds >= 0.005 else "and nothing new to compile"


def _cell_text(method: Method, key: str, cell: Cell) -> str:
    if cell.mean is None:
        return MISSING
    if key == "epsilon":
        return numbers.significant(cell.mean, 3)
    if key in ("bits_up", "bits_down"):
        return numbers.bits(cell.mean)
    if key == "seconds":
        return numbers.duration(cell.mean)
    if key.startswith("better"):
        return numbers.percent(cell.mean)
    spread = ""
    if cell.spread is not None:
        inner = f"{100 * cell.spread:.1f}" if method.task.is_share else numbers.like(cell.spread, cell.mean)
        spread = f" <small>± {inner}</small>"
    return value_text(method, cell.mean) + spread


def _table(heads: Sequence[str], body: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _row(index: int, name: str, cells: Sequence[str]) -> str:
    return f'<tr data-method="{index}"><th scope="row">{swatch(index)}{name}</th>{"".join(cells)}</tr>'
