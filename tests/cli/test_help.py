"""Every command's help shows all that was written for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from polyfed.cli.main import app
from tests.cli.command import polyfed


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(app)))


def _letters(text: str) -> str:
    """The text without spaces, frames and line breaks: how it is laid out does not matter."""
    return re.sub(r"[\s│─╭╮╰╯`*]+", "", text)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_help_page_has_no_holes(path: tuple[str, ...], tmp_path: Path) -> None:
    """Rich reads a word in square brackets as markup and drops it."""
    shown = _letters(polyfed(*path, "--help", cwd=tmp_path, COLUMNS="400").stdout)
    written = [(COMMANDS[path].help or "").split("\n\n")[0]]
    written += [getattr(option, "help", None) or "" for option in COMMANDS[path].params]
    for text in written:
        assert _letters(text) in shown, text
