"""The command line."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import warnings
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.bench import bench_app
from polyfed.cli.data import data_app
from polyfed.cli.deploy import deploy_app
from polyfed.cli.groups import Commands
from polyfed.cli.options import AsJson, Change, ConfigFile, HostIndex, Hosts, Overwrite, Quiet, Resume, err, out
from polyfed.cli.personalize import personalize
from polyfed.cli.tune import tune
from polyfed.core.errors import PolyfedError

if TYPE_CHECKING:
    from polyfed.studies.config import Config
    from polyfed.studies.run_directory import RunRecord


app = typer.Typer(
    cls=Commands,
    help="Personalized federated learning: what is collaboration worth to each client, and which method gives it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(deploy_app, name="deploy")
app.command()(personalize)
app.command()(tune)
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run directory; by default runs/NAME.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from polyfed import __version__

        out.print(f"polyfed {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    change: Change = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the runs go.")] = Path("runs/demo"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods on embedded data: a table, and a report page."""
    import tomllib

    from polyfed.studies.config import make_config

    sections = tomllib.loads(files("polyfed.cli").joinpath("demo.toml").read_text())
    config = make_config(sections, where="demo", changes=change or [])
    if not (quiet or as_json):
        out.print(
            f"[bold]polyfed demo[/]: {len(config.methods)} methods, {len(config.problem)} clients, embedded data\n"
        )
    _compare(config, folder, resume=False, overwrite=True, quiet=quiet, as_json=as_json)


@app.command()
def run(
    config: ConfigFile,
    change: Change = None,
    folder: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    hosts: Hosts = None,
    host_index: HostIndex = None,
) -> None:
    """Run one algorithm, and write its run directory."""
    from polyfed.report import write_report
    from polyfed.studies import experiment
    from polyfed.studies.config import read_config

    _with_others(hosts, host_index)
    settings = read_config(config, change or [])
    folder = folder or Path("runs") / config.stem
    silent = _is_silent(quiet or as_json)
    with _progress(silent) as progress:
        records = experiment.run(settings, folder, _options_for(progress, resume, overwrite, silent))
        if records:
            write_report(records, folder / "report.html", title=records[0].label)
    _show(records, folder, quiet, as_json)


@app.command()
def compare(
    config: ConfigFile,
    change: Change = None,
    folder: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    hosts: Hosts = None,
    host_index: HostIndex = None,
) -> None:
    """Run several methods side by side: a table like a paper's, as CSV, Markdown and LaTeX too."""
    from polyfed.studies.config import read_config

    _with_others(hosts, host_index)
    settings = read_config(config, change or [])
    _compare(settings, folder or Path("runs") / config.stem, resume, overwrite, quiet, as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one report page about one or several runs."""
    from polyfed.report import write_report
    from polyfed.studies.run_directory import find_runs, read_run

    records = [read_run(path) for given in runs for path in find_runs(given)]
    labels = list(dict.fromkeys(record.label for record in records))
    title = labels[0] if len(labels) == 1 else f"{len(labels)} methods compared"
    out.print(f"report: {escape(str(write_report(records, output, title=title)))}", soft_wrap=True)


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="Show one algorithm's hyper-parameters.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the algorithms, or the hyper-parameters of one."""
    from polyfed.algorithms import REGISTRY, get_algorithm

    chosen = REGISTRY if name is None else {name: get_algorithm(name)}
    if as_json:
        listing = {
            key: {f.name: f.default for f in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]
            for key, cls in chosen.items()
        }
        print(json.dumps(listing, indent=1, default=repr))
        return
    table = Table(box=None, pad_edge=False)
    if name is None:
        table.add_column("name", style="bold")
        table.add_column("what it is")
        for key, cls in sorted(REGISTRY.items()):
            table.add_row(key, escape(_first_line(cls)))
    else:
        for column in ("hyper-parameter", "default", "type"):
            table.add_column(column, style="bold" if column == "hyper-parameter" else "")
        cls = chosen[name]
        out.print(f"[bold]{name}[/]: {escape(_first_line(cls))}\n")
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        for field in sorted(fields, key=lambda field: bool(field.kw_only)):  # its own before those that it shares
            table.add_row(field.name, escape(repr(field.default)), escape(str(field.type)))
    out.print(table)


@app.command()
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
    from polyfed.cli.progress import bits
    from polyfed.cli.regime import print_regime
    from polyfed.studies.config import read_config
    from polyfed.studies.planning.plan import plan as make_plan

    problem = read_config(config, change or [], data_only=True).problem
    found = make_plan(problem, alpha, target, measure, local_steps=local_steps, rounds=rounds, batch=batch)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
        return
    constants = Table(box=None, pad_edge=False, show_header=False)
    for name, value in found.constants.items():
        constants.add_row(name.replace("_", " "), f"{value:.4g}")
    budgets = Table(box=None, pad_edge=False)
    budgets.add_column("communications", justify="right")
    budgets.add_column("alpha", justify="right")
    for row in found.budgets:
        budgets.add_row(f"{row['communications']:.0f}", f"{row['largest_alpha']:.4g}")
    ways = Table(box=None, pad_edge=False)
    for header in ("method", "rounds, at most", "bits up") + (("measured rounds", "bits up") if measure else ()):
        ways.add_column(header, justify="left" if header == "method" else "right")
    for row in found.predictions:
        cells = [row.method, f"{row.rounds:.0f}", bits(row.bits_up)]
        if measure:
            reached = row.measured_rounds is not None
            cells += [str(row.measured_rounds) if reached else "-", bits(row.measured_bits_up or 0) if reached else "-"]
        ways.add_row(*cells)
    titles = (
        "measured constants",
        f"largest alpha for f - f* <= {target:g} (FLIX, Sec. 3.1)",
        f"rounds to f - f* <= {target:g} at alpha = {alpha:g}",
    )
    for title, table in zip(titles, (constants, budgets, ways), strict=True):
        out.print(f"[bold]{title}[/]", highlight=False)
        out.print(table, "")
    print_regime(out, found.regime)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A figure such as flix/fig2, or a paper such as flix.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version: one dataset, fewer rounds.")] = False,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")] = Path("runs/papers"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a stopped reproduction ended.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin anew where one was stopped.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce a paper's figure: its data, its picture, and whether its claims hold."""
    from polyfed.papers import reproduce as run_experiments
    from polyfed.papers import reproduce_list

    if listing or name is None:
        rows = reproduce_list()
        if as_json:
            print(json.dumps(rows, indent=1))
            return
        table = Table(box=None, pad_edge=False)
        table.add_column("name", style="bold")
        table.add_column("what it shows")
        for row in rows:
            table.add_row(row["name"], escape(row["title"]))
        out.print(table)
        return

    def say(what: str, done: int, total: int) -> None:
        if not (quiet or as_json):
            err.print(f"[dim]{escape(what)}: {done} of {total}[/]", highlight=False)

    found = run_experiments(name, folder, quick, say, resume=resume, overwrite=overwrite)
    if as_json:
        claims = {e.name: [dataclasses.asdict(claim) for claim in outcome.claims] for e, _, outcome in found}
        print(json.dumps(claims, indent=1))
        return
    for chosen, place, outcome in found:
        out.print(f"[bold]{escape(chosen.name)}[/]: {escape(chosen.title)}", highlight=False)
        for claim in outcome.claims:
            mark = "[green]holds[/]" if claim.passed else "[red]does not hold[/]"
            out.print(f"  {mark}: {escape(claim.text)} [dim]({escape(claim.measured)})[/]", highlight=False)
        out.print(f"  {escape(str(place))}", soft_wrap=True, highlight=False)


def _compare(config: Config, folder: Path, resume: bool, overwrite: bool, quiet: bool, as_json: bool) -> None:
    from polyfed.report import write_fairness, write_report, write_table
    from polyfed.studies import experiment

    silent = _is_silent(quiet or as_json)
    with _progress(silent) as progress:
        records = experiment.compare(config, folder, _options_for(progress, resume, overwrite, silent))
        if records:
            write_table(records, folder)
            write_fairness(records, folder)
            write_report(records, folder / "report.html", title=f"{len(config.methods)} methods compared")
    _show(records, folder, quiet, as_json)


def _with_others(hosts: str | None, index: int | None) -> None:
    """Where several processes are to do this together, leave the work to one that is guarded here, and exit with it."""
    from polyfed.engine.hosts import guard
    from polyfed.engine.hosts.team import find_team

    if not guard.is_worker() and (team := find_team(hosts, index)) is not None:
        raise typer.Exit(guard.guarded(team, sys.argv[1:]))


def _is_silent(silent: bool) -> bool:
    """Of several processes, process 0 alone speaks."""
    from polyfed.engine.hosts.exchange import is_first

    return silent or not is_first()


def _options_for(progress: Any, resume: bool, overwrite: bool, silent: bool) -> Any:
    from polyfed.studies.experiment import Options

    say = (lambda text: None) if silent else (lambda text: err.print(escape(text), soft_wrap=True))
    return Options(resume=resume, overwrite=overwrite, progress=progress, say=say)


def _progress(silent: bool) -> Any:
    from polyfed.cli.progress import progress_bars

    return progress_bars(err, silent)


def _show(records: list[RunRecord], folder: Path, quiet: bool, as_json: bool) -> None:
    """The outcome, as a table or as JSON; nothing where process 0 shows it."""
    if not records:
        return
    from polyfed.cli.progress import terminal_table
    from polyfed.report import comparison_table

    if as_json:
        print(json.dumps({"folder": str(folder), "runs": [record.summary for record in records]}, indent=1))
        return
    diverged = [record.label for record in records if record.summary["diverged"]]
    for label in diverged:
        err.print(f"[yellow]{escape(label)} diverged and was stopped early[/]")
    if quiet:
        return
    out.print()
    out.print(terminal_table(comparison_table(records), out.width))
    out.print(f"\n[dim]{escape(str(records[0].summary['figure']))}[/]", highlight=False)
    out.print(f"report: {escape(str(folder / 'report.html'))}", soft_wrap=True, highlight=False)


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def main() -> None:
    """The entry point: a user's mistake is one sentence and exit code 2."""
    from polyfed.engine.hosts import guard

    guard.work(_main) if guard.is_worker() else _main()


def _main() -> None:
    from polyfed.engine.hosts.exchange import is_first
    from polyfed.engine.hosts.guard import LOST, LostProcess
    from polyfed.studies.experiment import Interrupted

    logging.basicConfig(format="%(message)s", level=logging.WARNING if is_first() else logging.ERROR)
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="polyfed")
    warnings.showwarning = lambda message, *_, **__: err.print(
        f"[yellow]warning[/]: {escape(str(message))}", soft_wrap=True, highlight=False
    )
    try:
        app()
    except PolyfedError as error:
        err.print(f"[bold red]error[/]: {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except LostProcess as loss:
        err.print(f"[bold red]error[/]: {escape(str(loss))}", soft_wrap=True, highlight=False)
        sys.exit(LOST)
    except Interrupted as stop:
        if is_first():
            err.print(f"\n{escape(str(stop.folder))}: {stop}", soft_wrap=True)
        sys.exit(130)
    except KeyboardInterrupt:
        err.print("\nstopped")
        sys.exit(130)
