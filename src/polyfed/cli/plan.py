"""The command `polyfed plan`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from polyfed.cli.options import AsJson, Change, ConfigFile, out

if TYPE_CHECKING:
    from polyfed.studies.planning.plan import Plan
    from polyfed.studies.planning.regimes import Regime

WORDS = {"local": "every client alone", "personalized": "a shared and a personal part", "global": "one model for all"}


def plan(
    config: ConfigFile,
    change: Change = None,
    alpha: Annotated[float, typer.Option(help="The weight of the global model in the mixture, from 0 to 1.")] = 0.5,
    target: Annotated[float, typer.Option(help="The accuracy f - f* to reach.")] = 1e-6,
    measure: Annotated[bool, typer.Option("--measure", help="Also run each method, and compare.")] = False,
    local_steps: Annotated[int, typer.Option(help="K: the local steps per round of the regime.", min=1)] = 10,
    rounds: Annotated[int, typer.Option(help="R: the rounds of the regime.", min=1)] = 20,
    batch: Annotated[int, typer.Option(help="The rows per step of the regime.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """By theory: the mixing weight that a budget allows, the way to a target, and whether to collaborate at all."""
    from polyfed.studies.config import read_config
    from polyfed.studies.planning.plan import plan as make_plan

    problem = read_config(config, change or [], data_only=True).problem
    made = make_plan(problem, alpha, target, measure, local_steps=local_steps, rounds=rounds, batch=batch)
    if as_json:
        print(json.dumps(made.as_dict(), indent=1))
        return
    parts = {
        "measured constants": _constants(made.constants),
        f"largest alpha for f - f* <= {target:g} (FLIX, Sec. 3.1)": _budgets(made),
        f"rounds to f - f* <= {target:g} at alpha = {alpha:g}": _predictions(made, measure),
    }
    for title, table in parts.items():
        out.print(f"[bold]{title}[/]", highlight=False)
        out.print(table, "")
    _show_regime(made.regime)


def _constants(constants: Mapping[str, float]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in constants.items():
        table.add_row(name.replace("_", " "), f"{value:.4g}")
    return table


def _budgets(made: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("communications", "alpha"):
        table.add_column(column, justify="right")
    for row in made.budgets:
        table.add_row(f"{row['communications']:.0f}", f"{row['largest_alpha']:.4g}")
    return table


def _predictions(made: Plan, measure: bool) -> Table:
    from polyfed.cli.progress import bits

    table = Table(box=None, pad_edge=False)
    for header in ("method", "rounds, at most", "bits up") + (("measured rounds", "bits up") if measure else ()):
        table.add_column(header, justify="left" if header == "method" else "right")
    for row in made.predictions:
        cells = [row.method, f"{row.rounds:.0f}", bits(row.bits_up)]
        if measure:
            reached = row.measured_rounds is not None
            cells += [str(row.measured_rounds) if reached else "-", bits(row.measured_bits_up or 0) if reached else "-"]
        table.add_row(*cells)
    return table


def _show_regime(regime: Regime) -> None:
    """Print which regime has the least bound, which the least distance in a run, and how far the two are apart."""
    title = f"after {regime.rounds} rounds of {regime.local_steps} steps on batches of {regime.batch} (PLSGD, Table 1)"
    out.print(f"[bold]{title}[/]", highlight=False)
    constants = _constants(regime.constants)
    constants.add_row("condition numbers of (16)", f"{regime.window[0]:.4g} to {regime.window[1]:.4g}")
    out.print(constants)
    table = Table(box=None, pad_edge=False)
    run = regime.measured is not None
    for header in (
        "method",
        "regime",
        "distance by the bound",
        *(("in a run", "run / bound", "its stepsize") if run else ()),
    ):
        table.add_column(header, justify="left" if header in ("method", "regime") else "right")
    for way in regime.ways:
        cells = [way.method, way.regime, "outside its window" if way.bound is None else f"{way.bound:.4g}"]
        if run:
            cells += [f"{way.measured:.4g}", "-" if way.ratio is None else f"{way.ratio:.2g}"]
            cells.append("inside" if way.end is None else f"the {way.end} tried")
        table.add_row(*cells)
    out.print(table)
    best = regime.quadratics[regime.predicted]
    found = ", ".join(f"{name} {best[name]:.3g}" for name in ("alpha", "beta", "stepsize"))
    what = "the bounds" if regime.by == "bounds" else "exact quadratics, since the bounds say nothing here"
    sentence = f"by {what}: {regime.predicted} ({WORDS[regime.predicted]})"
    if regime.by == "quadratics":
        distances = ", ".join(f"{name} {exact['distance']:.4g}" for name, exact in regime.quadratics.items())
        out.print(f"distance on quadratics with these constants: {distances}; PLSGD's best there: {found}", "")
    if regime.measured is not None:
        same = ", too" if regime.measured == regime.predicted else ""
        sentence += f"; in short runs{same}: {regime.measured} ({WORDS[regime.measured]})"
    out.print(sentence, "", highlight=False)
