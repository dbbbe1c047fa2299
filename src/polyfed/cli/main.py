"""The app: it collects the commands, prints the version, and turns errors into sentences and exit codes.

Each command has a file of its name. Nothing here loads JAX: a command does, when it runs.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import Annotated

import typer
from rich.markup import escape

from polyfed import __version__
from polyfed.cli.advise import advise
from polyfed.cli.algorithms import algorithms
from polyfed.cli.bench import bench_app
from polyfed.cli.compare import compare
from polyfed.cli.data import data_app
from polyfed.cli.demo import demo
from polyfed.cli.deploy import deploy_app
from polyfed.cli.export import export
from polyfed.cli.groups import Commands
from polyfed.cli.leaderboard import leaderboard_app
from polyfed.cli.options import err, out
from polyfed.cli.personalize import personalize
from polyfed.cli.plan import plan
from polyfed.cli.predict import predict
from polyfed.cli.report import report
from polyfed.cli.reproduce import reproduce
from polyfed.cli.run import run
from polyfed.cli.tune import tune
from polyfed.core.errors import INTERRUPTED, LOST, USER_ERROR, Interrupted, LostProcess, PolyfedError, of_the_system
from polyfed.core.worker import is_first, this_worker

app = typer.Typer(
    cls=Commands,
    help="Personalized federated learning: what is collaboration worth to each client, and which method gives it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, advise, run, compare, tune, personalize, predict, export, report, algorithms, plan, reproduce):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(deploy_app, name="deploy")
app.add_typer(leaderboard_app, name="leaderboard")


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"polyfed {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of `polyfed`, also in the workers of a run on several hosts."""
    worker = this_worker()
    if worker is None:
        _main()
    else:
        from polyfed.engine.hosts.work import work

        work(worker, _main)


_said: set[str] = set()
"""The kinds of warnings that this command has shown."""


def _say_error(sentence: str) -> None:
    err.print(f"[bold red]error[/]: {escape(sentence)}", soft_wrap=True, highlight=False)


def _say_warning(sentence: str) -> None:
    """Show a warning; of those that differ in a limit alone, which follows from a split's rows, the first."""
    kind = re.sub(r"is above [0-9.e+-]+", "is above", sentence)
    if kind not in _said:
        _said.add(kind)
        err.print(f"[yellow]warning[/]: {escape(sentence)}", soft_wrap=True, highlight=False)


def _main() -> None:
    """Run the command that the arguments name. A user's mistake is one sentence and exit code 2."""
    _said.clear()
    logging.basicConfig(format="%(message)s", level=logging.WARNING if is_first() else logging.ERROR)
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="polyfed")
    warnings.showwarning = lambda message, *_, **__: _say_warning(str(message))
    try:
        app()
    except (PolyfedError, LostProcess) as error:
        _say_error(str(error))
        sys.exit(LOST if isinstance(error, LostProcess) else USER_ERROR)
    except BrokenPipeError:  # whoever read the output has enough
        raise
    except (OSError, MemoryError, RuntimeError) as error:
        sentence = of_the_system(error)
        if sentence is None:
            raise
        _say_error(sentence)
        sys.exit(USER_ERROR)
    except Interrupted as stop:
        if is_first():
            err.print(f"\n{escape(str(stop.folder))}: {stop}", soft_wrap=True)
        sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        err.print("\nstopped")
        sys.exit(INTERRUPTED)
