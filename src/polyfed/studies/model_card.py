"""`result.save_pretrained`: a run's folder with a model card, as model hubs show one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from polyfed.core.files import write_text
from polyfed.engine.result import Result
from polyfed.studies.compare_results import gains
from polyfed.studies.kept_result import save_result

if TYPE_CHECKING:
    import pandas as pd

MOST_CLIENTS = 50
"""Clients that a card lists; `clients.csv` has all of them."""


def save_pretrained(result: Result, folder: str | Path, alone: Result | None = None) -> Path:
    """Write a run's folder and its card, README.md.

    `alone`: a run of the same problem in which nobody trained together; the card then has each client's verdict.
    """
    judged = None if alone is None else gains(result, alone)  # before anything is written
    place = save_result(result, folder)
    write_text(place / "README.md", card(result, judged))
    return place


def card(result: Result, judged: pd.DataFrame | None) -> str:
    """The card: what was trained, on which data, how good it is, and who gains."""
    from polyfed import __version__

    simulation, problem, method = result.simulation, result.problem, result.algorithm
    settings = {name: value for name, value in vars(method).items() if value is not None}
    summary = (type(method).__doc__ or method.name).strip().partition("\n")[0]
    lines = [
        "---",
        "library_name: polyfed",
        "tags:",
        "- federated-learning",
        "- personalization",
        f"- {method.name}",
        "---",
        "",
        f"# {method.name}: a model for each of {len(problem)} clients",
        "",
        f"Trained by polyfed {__version__} for {simulation.round} rounds. {summary}",
        "",
        "| | |",
        "| --- | --- |",
        f"| method | `{method.name}` |",
        *(f"| `{name}` | `{_plain(value)}` |" for name, value in settings.items()),
        f"| parameters of a model | {simulation.parameters:,} |",
        f"| loss | `{problem.loss.name}`, ridge {problem.l2:g} |",
        f"| seed, numbers | {simulation.seed}, `{simulation.dtype}` |",
        f"| data | `{problem.federation.source.get('name', 'arrays in memory')}`, {problem.federation.train.rows:,} "
        f"training rows, digest `{problem.fingerprint}` |",
        f"| stopped early | {'no' if result.diverged is None else 'yes: ' + str(result.diverged)} |",
        "",
        "## Which model is which",
        "",
        "A client deploys its *personal* model."
        + (" The *global* model is for clients that took no part." if result.global_params is not None else ""),
        "",
        "```python",
        "import polyfed as pf",
        "",
        'models = pf.load("FOLDER")',
        f'models.predict("{_first_client(result)}", rows)',
        "```",
        "",
        "## How good they are",
        "",
        *_figures(result),
        "",
        "## Who gains from training together",
        "",
        *_verdicts(judged),
    ]
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    return (
        json.dumps(value) if isinstance(value, str | bool) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _first_client(result: Result) -> str:
    return str(result.problem.federation.clients[0])


def _figures(result: Result) -> list[str]:
    if not result.problem.federation.test.rows:
        return ["There were no test rows."]
    rows = result.aggregate("test")
    return [
        "Test rows, which trained and chose nothing. The mean is over clients, each counting once.",
        "",
        "| model | metric | mean | all rows together |",
        "| --- | --- | --- | --- |",
        *(
            f"| {row['model']} | {row['metric']} | {row['mean']:.4f} | {row['pooled']:.4f} |"
            for row in rows.to_dict("records")
        ),
    ]


def _verdicts(judged: pd.DataFrame | None) -> list[str]:
    if judged is None:
        return ["Not judged: no run without training together was given."]
    counts = judged["verdict"].value_counts()
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    shown = judged.head(MOST_CLIENTS)
    more = len(judged) - len(shown)
    return [
        f"{told}, of {len(judged)} clients. Gains over training alone, with 95% intervals.",
        "",
        "| client | test rows | gain | from | to | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row['client']} | {row['test_rows']} | {row['gain']:+.4f} | {row['gain_low']:+.4f} "
            f"| {row['gain_high']:+.4f} | {row['verdict']} |"
            for row in shown.to_dict("records")
        ),
        *([f"\n{more} more clients are in `clients.csv`."] if more else []),
    ]
