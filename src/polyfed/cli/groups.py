"""Groups of commands. A misspelt command or option ends with one sentence, as every other mistake does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from polyfed.core.errors import PolyfedError, closest, suggestion

if TYPE_CHECKING:
    import click

NoSuchOption: type[click.NoSuchOption] = import_module(typer.BadParameter.__module__).NoSuchOption
"""Typer's own, as it has come with a click of its own since version 0.26."""
ASKS_FOR_HELP = "polyfed.asks_for_help"
"""Where a context says that a help page is wanted: that needs no extra."""


class Commands(TyperGroup):
    """The commands of `polyfed`, or of a group such as `polyfed data`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(ASKS_FOR_HELP, bool({"-h", "--help"} & set(args)))
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            raise _unknown_option(error, ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            where = "" if ctx.parent is None else f"{ctx.command_path}: "
            raise PolyfedError(f"{where}unknown command '{args[0]}'{suggestion(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except NoSuchOption as error:
            raise _unknown_option(error, ctx) from None


def _unknown_option(error: click.NoSuchOption, ctx: click.Context) -> PolyfedError:
    """An error that names the nearest option, or the config key that was meant."""
    place, name = error.ctx or ctx, error.option_name
    known = [text for parameter in place.command.params for text in parameter.opts if text.startswith("--")]
    # Without the dashes that all options begin with: they would make any two short ones alike.
    word, words = _plain(name), {_plain(option): option for option in known}
    keys = _config_keys(tunes=place.command.name == "tune") if "--set" in known else {}
    option, key = closest(word, words), closest(word, keys)
    if option is not None:
        hint = f"; did you mean '{words[option]}'?"
    elif key is not None:
        hint = f"; a key of the config is set by --set {keys[key]}=..."
    else:
        hint = suggestion(name, known)
    return PolyfedError(f"{place.command_path}: unknown option '{name}'{hint}")


def _plain(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _config_keys(tunes: bool) -> dict[str, str]:
    """The keys of a config by their names: all of [run], and of [tune] where that is read, and the usual others."""
    from polyfed.studies.run_settings import RunSettings
    from polyfed.studies.search_space import TuneSettings

    sections: dict[str, Iterable[str]] = {
        "problem": ("model", "hidden", "loss", "l2"),
        "data": ("source", "path", "clients", "partition", "target", "client"),
        "algorithm": ("name", "lr", "batch", "local_steps", "local_epochs"),
        **({"tune": [field.name for field in dataclasses.fields(TuneSettings)]} if tunes else {}),
        "run": [field.name for field in dataclasses.fields(RunSettings)],
    }
    return {name: f"{section}.{name}" for section, names in sections.items() for name in names}
