"""What was measured and how it was judged, so that no figure has to be guessed at."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from polyfed.report.methods import Method
from polyfed.report.sections import over

_BASES = {
    "splits": "Intervals are for a client’s expected gain over splits of its rows into training and test rows: "
    "training and judging were repeated on {splits} of them.",
    "rows": "Intervals are for the gain of these very models on new rows of the same client, from the test rows of one "
    "split. What another split or seed would have given is not in them.",
    "seeds": "Intervals are for the gain on new rows of the same client, from the test rows of one split and over "
    "several seeds. What another split would have given is not in them.",
}


def notes(methods: Sequence[Method]) -> str:
    """The definitions behind the page's numbers, and each method's own sentence."""
    task = methods[0].task
    worst, best = ("lowest", "highest") if task.higher_is_better else ("highest", "lowest")
    bases = dict.fromkeys((method.gains.basis, method.splits) for method in methods if method.gains is not None)
    lines = [
        f"Every figure is the <b>{escape(task.name)}</b> of the model that a client deploys, after the last round "
        f"(not the best one), over {over(methods)}, those included that were absent from some rounds.",
        "A mean counts each client once. The worst and best 10% are means over the tenth of the clients with the "
        f"{worst} and {best} {escape(task.label)}.",
        "<b>Alone</b> is purely local training of the same model with the same budget. <b>Constant</b> predicts the "
        "same for every row of a client: its class frequencies, or its mean, on training rows.",
        "A client’s <b>gain</b> is how much better the deployed model is than going alone on the same test rows"
        + (", in percentage points" if task.is_share else "")
        + ": above zero it is better off.",
        *(_BASES[basis].format(splits=splits) for basis, splits in bases if basis in _BASES),
        "A verdict is <b>gains</b> or <b>loses</b> where that is certain at 95% for all clients of a method together "
        "(Holm’s correction), so it is stricter than one interval; else it is <b>cannot tell</b>, with the smallest "
        "difference that the client’s rows could have shown.",
        "Bits are counted from what travels: up is from all clients to the server, down is back to them.",
    ]
    if any(len(method.runs) > 1 for method in methods):
        lines.append(
            "Where a method has several runs, tables show the mean ± standard deviation over them, curves the mean "
            "with a band from the lowest to the highest, and a client’s figures are means over them; gains and "
            "verdicts are of all runs together."
        )
    listed, data = _list(lines), _of_data(methods)
    if len({method.figure for method in methods}) == 1:
        return f"{listed}<p>In a sentence: {escape(methods[0].figure)}.</p>{data}"
    deployed = [f"<b>{escape(method.label)}:</b> {escape(method.figure)}" for method in methods]
    return f"{listed}<h3>Per method</h3>{_list(deployed)}{data}"


def _of_data(methods: Sequence[Method]) -> str:
    """How labels and columns were read, as the runs said it before they began."""
    said = dict.fromkeys(note for method in methods for run in method.runs for note in run.summary.get("notes") or [])
    return f"<h3>How the data was read</h3>{_list([escape(note) for note in said])}" if said else ""


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
