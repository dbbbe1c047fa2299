"""The command `polyfed advise`."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.options import AsJson, Overwrite, Quiet, err, out
from polyfed.core.errors import PolyfedError
from polyfed.core.files import check_folder

if TYPE_CHECKING:
    from polyfed.data import Federation
    from polyfed.studies.advice import Advice
    from polyfed.studies.advice.settings import AdviceSettings

SHOWN = 20
"""Sites that the terminal lists; the files have all."""


def advise(
    table: Annotated[
        Path, typer.Argument(help="A CSV or Parquet file, a folder with one for each site, or a config (.toml).")
    ],
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column to predict.")] = None,
    client: Annotated[
        str | None, typer.Option("--client", "-c", help="The column that says whose a row is; not for a folder.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", "-m", help="About how long it may take; by default 5.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="Also say what this much privacy of the sites would cost.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the outcome goes; by default runs/NAME-advice.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what an earlier call has begun.")] = False,
    overwrite: Overwrite = False,
    metric: Annotated[str | None, typer.Option("--metric", help="What gains are counted in.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the draws of training and test rows.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Should these sites train together? Which method, what does each gain, and which model should it deploy?"""
    begun = time.monotonic()
    if not table.exists():
        raise PolyfedError(f"{table}: there is no such file or folder")
    place = folder or Path("runs") / f"{table.stem}-advice"
    check_folder(place)
    if (place / "trials").exists() and not (resume or overwrite):
        raise PolyfedError(f"{place}: there is advice already; use --resume, --overwrite or another --out")
    from polyfed.cli.progress import advice_bar
    from polyfed.data import Federation, load, source_options
    from polyfed.report import write_advice_page
    from polyfed.studies.advice.advice import TEST, VALIDATION, advise_with
    from polyfed.studies.advice.files import write_advice
    from polyfed.studies.advice.models import write_advised_models

    section, settings = _asked(table, client, target)
    given = {"minutes": minutes, "epsilon": epsilon, "metric": metric, "seed": seed}
    settings = dataclasses.replace(settings, **{name: value for name, value in given.items() if value is not None})
    settings.check()
    shares = {"validation": VALIDATION, "test": TEST, "seed": settings.seed, "prepare": True}
    section = {name: value for name, value in shares.items() if name in source_options(section["source"])} | section
    options = {name: value for name, value in section.items() if name != "source"}
    federation = load(str(section["source"]), **options)
    if not isinstance(federation, Federation):
        raise PolyfedError(f"{table}: advise needs the rows of all sites in memory; these are on demand")
    if not (quiet or as_json):
        for note in federation.notes:
            err.print(f"[dim]data[/]: {escape(note)}", soft_wrap=True, highlight=False)
    with advice_bar(err, quiet or as_json) as progress:
        advice = advise_with(settings, federation, folder=place, resume=resume, progress=progress, begun=begun)
        write_advice(advice, place, section)
        missing = leave_project(advice.method, federation, place, section["source"])
        write_advice_page(advice, place / "report.html", title=table.stem)
        if progress is not None:
            progress("the models to deploy", 0.0)
        write_advised_models(advice, federation, place)
    if missing:
        err.print(f"no project for deployment: {escape(missing)}", soft_wrap=True, highlight=False)
    if as_json:
        print(json.dumps({"folder": str(place), **advice.as_dict()}, indent=1))
    elif not quiet:
        _show(advice, place)


def _asked(table: Path, client: str | None, target: str | None) -> tuple[dict[str, Any], AdviceSettings]:
    """The section [data], and what is tried."""
    from polyfed.data import table_section
    from polyfed.studies.advice.settings import AdviceSettings, read_advice_config

    if table.suffix.lower() == ".toml":
        for option, value in (("--client", client), ("--target", target)):
            if value is not None:
                raise PolyfedError(f"{table}: {option} names a column of a table; a config says it in [data]")
        return read_advice_config(table)
    if table.is_dir() and client is not None:
        raise PolyfedError(f"{table}: a folder has a file per site, and needs no --client")
    section = table_section(table, client, target)
    if section is None:
        raise PolyfedError(f"{table}: expected a .csv or .parquet file, a folder of them, or a config")
    return section | {"path": str(table.resolve())}, AdviceSettings()


def leave_project(method: str, federation: Federation, place: Path, source: str) -> str | None:
    """The project in the advice's folder, which a later command gives its keys; or why there can be none."""
    from polyfed.deploy.configs import has_no_keys
    from polyfed.deploy.from_advice import TABLES, write_project
    from polyfed.studies.advice.kept_parts import PROJECT

    project = place / PROJECT
    if has_no_keys(project):  # of an earlier call that was resumed
        shutil.rmtree(project)
    if method == "alone" or source not in TABLES or project.exists():
        return None
    try:
        write_project(place, project, federation)
    except PolyfedError as error:
        return str(error)
    return None


def _show(advice: Advice, place: Path) -> None:
    for warning in advice.warnings:
        err.print(f"[yellow]caution[/]: {escape(warning)}", soft_wrap=True, highlight=False)
    label = advice.metric.label
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("site", style="bold", overflow="fold")
    for column in ("rows", "alone", "advised", f"gain in {label} (95%)"):
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_column("verdict", no_wrap=True)
    grid.add_column("deploy")
    for site in advice.sites[:SHOWN]:
        low, high = site.gain_low, site.gain_high
        ends = "" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})"
        known = ("–" if math.isnan(value) else f"{value:.3f}" for value in (site.alone, site.advised))
        values = (f"{site.rows:,}", *known, "–" if math.isnan(site.gain) else f"{site.gain:+.3f}{ends}")
        grid.add_row(escape(site.client), *values, site.verdict, site.deploy)
    out.print()
    out.print(grid)
    if len(advice.sites) > SHOWN:
        out.print(f"and {len(advice.sites) - SHOWN} more in {place / 'sites.csv'}", highlight=False)
    out.print()
    for sentence in (advice.sentence, *advice.beside):
        out.print(f"{escape(sentence)}.", highlight=False)
    if advice.skipped:
        out.print(f"Not tried for want of time: {escape(advice.not_tried)}. --minutes gives more.", highlight=False)
    if advice.influence is not None:
        brings = advice.influence.brings_by_site
        most, least = (choose(brings, key=lambda site: brings[site]) for choose in (max, min))
        for site, change, word in ((most, brings[most], "rise"), (least, -brings[least], "fall")):
            if change > 0:
                out.print(
                    f"Without {escape(site)}, the others' loss would {word} most, by {change:.4f}.", highlight=False
                )
    if advice.privacy is not None:
        out.print(f"{advice.privacy.sentence}.", highlight=False)
    if advice.method != "alone":
        out.print(
            f"One training: {advice.rounds} rounds, {advice.bits_up / 8e6:.2g} MB up and {advice.bits_down / 8e6:.2g} "
            f"MB down by all sites, {advice.training_seconds:.2g} s here. Found in {advice.seconds:.0f} s.",
            highlight=False,
        )
    out.print(f"report: {place / 'report.html'}", highlight=False)
    for command in advice.next_commands(place):
        out.print(f"next: {escape(command)}", soft_wrap=True, highlight=False)
