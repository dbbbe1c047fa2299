"""The command `polyfed predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from polyfed.cli.options import err
from polyfed.core.errors import PolyfedError
from polyfed.core.files import check_file


def predict(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run, or a site's folder.")],
    rows: Annotated[Path, typer.Argument(help="The rows to score: a CSV or Parquet file.")],
    client: Annotated[
        str | None, typer.Option("--client", help="Whose model; by default each row's own, by the client column.")
    ] = None,
    shared: Annotated[bool, typer.Option("--global", help="Use the global model instead.")] = False,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the scored rows go; by default to the terminal, as CSV.")
    ] = None,
) -> None:
    """Score new rows: their own columns, then the prediction and its probability."""
    from polyfed.studies.predicting import predict_file

    if shared and client is not None:
        raise PolyfedError("--global and --client name two models, expected one")
    if output is not None:
        check_file(output)
    scored = predict_file(run, rows, client, shared=shared)
    if output is None:
        sys.stdout.write(scored.as_csv())
        return
    scored.write(output)
    count = f"{len(scored.table):,} row{'s' if len(scored.table) != 1 else ''}"
    err.print(f"{count} scored: {escape(str(output))}", soft_wrap=True, highlight=False)
