"""The regime of a plan, for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from polyfed.studies.planning.regimes import Regime

WORDS = {"local": "every client alone", "personalized": "a shared and a personal part", "global": "one model for all"}


def print_regime(out: Console, found: Regime) -> None:
    """Which regime has the least bound, which the least distance in a run, and how far apart the two are."""
    title = f"after {found.rounds} rounds of {found.local_steps} steps on batches of {found.batch} (PLSGD, Table 1)"
    out.print(f"[bold]{title}[/]", highlight=False)
    facts = Table(box=None, pad_edge=False, show_header=False)
    for name, value in found.constants.items():
        facts.add_row(name.replace("_", " "), f"{value:.4g}")
    facts.add_row("condition numbers of (16)", f"{found.window[0]:.4g} to {found.window[1]:.4g}")
    out.print(facts)
    table = Table(box=None, pad_edge=False)
    run = found.measured is not None
    for header in ("method", "regime", "distance by the bound", *(("in a run", "run / bound") if run else ())):
        table.add_column(header, justify="left" if header in ("method", "regime") else "right")
    for way in found.ways:
        cells = [way.method, way.regime, "outside its window" if way.bound is None else f"{way.bound:.4g}"]
        if run:
            cells += [f"{way.measured:.4g}", "-" if way.ratio is None else f"{way.ratio:.2g}"]
        table.add_row(*cells)
    out.print(table)
    said = f"by the bounds: {found.predicted} ({WORDS[found.predicted]})"
    if found.measured is not None:
        same = ", too" if found.measured == found.predicted else ""
        said += f"; in short runs{same}: {found.measured} ({WORDS[found.measured]})"
    out.print(said, "", highlight=False)
