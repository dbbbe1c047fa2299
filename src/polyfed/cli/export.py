"""The command `polyfed export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from polyfed.cli.options import err
from polyfed.core.errors import PolyfedError


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run, or a site's folder.")],
    file: Annotated[Path, typer.Argument(help="What to write: a name that ends in .onnx or, for any model, in .jax.")],
    client: Annotated[str | None, typer.Option("--client", help="Whose model.")] = None,
    shared: Annotated[bool, typer.Option("--global", help="The global model instead.")] = False,
) -> None:
    """Write a trained model, with the preparation of its rows, for other programs."""
    from polyfed.studies.predicting import models_of

    if shared and client is not None:
        raise PolyfedError("--global and --client name two models, expected one")
    models, chosen = models_of(run, client, shared=shared)
    if chosen is None and not shared:
        raise PolyfedError(
            f"{models.path}: which model? --client names one of {', '.join(models.clients[:5])}, or --global"
        )
    for path in models.export(file, chosen):
        err.print(f"written: {escape(str(path))}", soft_wrap=True, highlight=False)
