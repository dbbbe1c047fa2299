"""Every command's help shows all that was written for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer

from polyfed.cli.main import app
from tests.cli.command import polyfed
from tests.package.every_command import CALLS, SERVICES, letters

if TYPE_CHECKING:
    import click


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_help_page_has_no_holes(path: tuple[str, ...], tmp_path: Path) -> None:
    """Rich reads a word in square brackets as markup and drops it."""
    shown = letters(polyfed(*path, "--help", cwd=tmp_path, COLUMNS="400").stdout)
    written = [(COMMANDS[path].help or "").split("\n\n")[0]]
    written += [getattr(option, "help", None) or "" for option in COMMANDS[path].params]
    for text in written:
        assert letters(text) in shown, text


def test_make_test_floor_calls_every_command() -> None:
    ends = {" ".join(path) for path, command in COMMANDS.items() if not hasattr(command, "commands")}
    assert ends == {*CALLS, *SERVICES}
