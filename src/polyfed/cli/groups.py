"""Groups of commands, in which a word that there is not is one sentence, as any other mistake."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import Any

import click
from typer.core import TyperGroup

from polyfed.core.errors import PolyfedError, suggestion


class Commands(TyperGroup):
    """The commands of `polyfed`, or of a group of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _unknown(error, ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            where = "" if ctx.parent is None else f"{ctx.command_path}: "
            raise PolyfedError(f"{where}unknown command '{args[0]}'{suggestion(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _unknown(error, ctx) from None


def _unknown(error: click.NoSuchOption, ctx: click.Context) -> PolyfedError:
    """The sentence for an option that there is not: the nearest one, or the key of a config that was meant."""
    from polyfed.studies.config import RunSettings

    place, name = error.ctx or ctx, error.option_name
    known = [text for parameter in place.command.params for text in parameter.opts if text.startswith("--")]
    keys = [field.name for field in dataclasses.fields(RunSettings)] if "--set" in known else []
    meant = {f"--{key.replace('_', '-')}": key for key in keys if f"--{key.replace('_', '-')}" not in known}
    close = get_close_matches(name, [*known, *meant], n=1, cutoff=0.6)
    if close and close[0] in meant:
        hint = f"; a key of the config is set by --set run.{meant[close[0]]}=..."
    else:
        hint = suggestion(name, known)
    return PolyfedError(f"{place.command_path}: unknown option '{name}'{hint}")
