"""The clients of the method that the headline is about: the answer in cards, and a plain table for no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from polyfed.report.gains import GAINS, LOSES, UNDECIDED, Gains
from polyfed.report.headline import could_be_seen, moved, reach
from polyfed.report.methods import Method
from polyfed.report.numbers import MISSING, between, gained, percent, strict_average
from polyfed.report.sections import html_table, value_text

PLAIN_ROWS = 500  # a page that is read without scripts shows no more clients


def cards(method: Method) -> str:
    """The headline's figures: verdicts, the mean gain, and the mean beside its yardsticks."""
    task, gains, made = method.task, method.gains, []
    if gains is not None and gains.judged:
        made += [
            _count_card("Gain for certain", gains, GAINS, ""),
            _count_card("Lose for certain", gains, LOSES, ""),
            _count_card("Cannot tell", gains, UNDECIDED, could_be_seen(gains, task) if gains.count(UNDECIDED) else ""),
        ]
    if gains is not None and gains.mean is not None:
        over = f"mean over {gains.mean_over}" if gains.mean_over else ""
        note = ", ".join(filter(None, [reach(gains.mean, task), over]))
        made.append(_card("Mean gain over alone", moved(gains.mean, task), note))
    means = [(name, method.mean(model)) for name, model in (("alone", "alone"), ("constant", "constant"))]
    parts = [f"{value_text(task, mean)} {name}" for name, mean in means if mean is not None]
    beside = ", ".join([*parts, *([f"over {method.over}"] if method.over else [])])
    made.append(_card(f"Mean {task.name}", value_text(task, method.mean(method.deployed)), beside))
    worst = [strict_average(method.run_statistics(model, "worst10")) for model in (method.deployed, "alone")]
    beside = "" if worst[1] is None else f"{value_text(task, worst[1])} alone"
    made.append(_card("Worst 10% of clients", value_text(task, worst[0]), beside))
    return "".join(made)


def plain_table(method: Method) -> str:
    """The table of clients for a browser without scripts."""
    task, gains = method.task, method.gains
    judged: Sequence = gains.clients if gains is not None else [None] * len(method.clients)
    columns = zip(
        method.clients,
        method.column("rows"),
        method.column("positives"),
        method.values("alone"),
        method.values(method.deployed),
        judged,
        strict=True,
    )
    body = []
    for name, rows, positives, alone, together, client in list(columns)[:PLAIN_ROWS]:
        interval = client.interval if client else None
        cells = [
            MISSING if rows is None else f"{rows:,.0f}",
            percent(positives),
            value_text(task, alone),
            value_text(task, together),
            gained(interval, task.is_share) if interval else MISSING,
            between(interval, task.is_share) if interval else MISSING,
            (client.verdict if client else None) or MISSING,
        ]
        body.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    heads = ["Client", "Rows", "Positives", "Alone", "Together", "Gain", "95% interval", "Verdict"]
    return html_table(heads, body)


def _count_card(name: str, gains: Gains, verdict: str, note: str) -> str:
    return _card(name, f"{gains.count(verdict):,} of {gains.judged:,}", note or "clients")


def _card(name: str, value: str, note: str) -> str:
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(note)}</p></div>'
