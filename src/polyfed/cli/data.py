"""The commands `polyfed data list`, `info` and `fetch`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

import typer
from rich.markup import escape
from rich.table import Table

from polyfed.cli.columns import columns_table, sites_table
from polyfed.cli.groups import Commands
from polyfed.cli.options import AsJson, Change, err, out, say_cautions
from polyfed.core.files import check_file, check_folder

if TYPE_CHECKING:
    from polyfed.data.sources.fetch import Fetched

data_app = typer.Typer(
    cls=Commands,
    help="The data sources, how to get them, and what a config's data looks like.",
    no_args_is_help=True,
)


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sources: what each is, whether it is there or what it would take, and its licence."""
    from polyfed.data.sources.published import data_folder

    rows = _sources()
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("source", "what it is", "there?", "licence"):
        table.add_column(column, style="bold" if column == "source" else "", overflow="fold")
    for name, row in rows.items():
        colour = "green" if row["there"] else "yellow"
        state = escape(row["state"])
        table.add_row(name, escape(row["what"]), f"[{colour}]{state}[/]" if row["published"] else state, row["licence"])
    out.print(table)
    out.print(f"\nPublished files lie in {escape(str(data_folder()))} (POLYFED_DATA).", soft_wrap=True, highlight=False)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, such as mnist or cifar10.")],
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="The data folder; by default POLYFED_DATA, or the user's cache.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="A mirror that has the files under their names.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download a dataset to the data folder: checked, and resumed where it was cut."""
    from polyfed.cli.progress import download_bars
    from polyfed.data.sources.fetch import fetch, find

    for name in names:
        find(name)  # refuses a misspelt name before anything is downloaded
    if folder is not None:
        check_folder(folder)
    fetched: dict[str, list[Fetched]] = {}
    try:
        with download_bars(err, quiet or as_json) as report:
            for name in names:
                fetched[name] = fetch(name, folder, base=base, report=report)
    except KeyboardInterrupt:
        err.print("\nstopped; what came is kept, and the same command goes on from there")
        raise typer.Exit(130) from None
    if as_json:
        listing = {name: [dataclasses.asdict(file) for file in files] for name, files in fetched.items()}
        print(json.dumps(listing, indent=1, default=str))
        return
    for name, files in fetched.items():
        new = [file for file in files if not file.already]
        what = f"{len(new)} file{'s' if len(new) != 1 else ''} fetched" if new else "was already there"
        out.print(f"[bold]{escape(name)}[/]: {what}, in {escape(str(files[0].path.parent))}", highlight=False)
        for file in new:
            if file.sha256:
                note = "no checksum of it is known here, so compare if you can"
                out.print(f"  {escape(file.path.name)}: {file.sha256} ({note})", soft_wrap=True, highlight=False)


@data_app.command("info")
def data_info(
    config: Annotated[
        Path, typer.Argument(help="A config, or a table: a CSV or Parquet file, a folder with one each.")
    ],
    change: Change = None,
    client: Annotated[
        str | None, typer.Option("--client", help="Of a table, the column that says whose row it is.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Of a table, the column to predict.")] = None,
    sites: Annotated[bool, typer.Option("--sites", help="Show every column at every client.")] = False,
    drawing: Annotated[
        Path | None, typer.Option("--picture", "-p", help="Also draw who has which labels, to an .svg, .png or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a config's data, or a table: clients, rows, columns, label skew, feature shift; as a picture too."""
    from polyfed.data import Federation, picture, table_section
    from polyfed.data.cautions import cautions
    from polyfed.data.tables.understood import by_site, understood
    from polyfed.studies.config import make_config, read_config

    if drawing is not None:
        check_file(drawing)
    section = table_section(config, client, target)
    if section is None:
        read = read_config(config, change or [], data_only=True)
    else:
        read = make_config({"data": section}, where=str(config), changes=change or [], data_only=True)
    federation = read.federation
    if not isinstance(federation, Federation):
        federation.summary()  # says why there is none
    drawn = None if drawing is None else picture(federation, drawing)
    summary, columns = federation.summary(), understood(federation)
    if as_json:
        at = by_site(columns)
        rows = [row | ({"columns": at[row["client"]]} if at else {}) for row in summary.to_dicts()]
        print(json.dumps(rows, indent=1))
        return
    out.print(escape(str(summary)), highlight=False)
    if columns:
        out.print(columns_table(columns))
        if sites:
            out.print(sites_table(columns))
        if written := federation.source.get("read"):
            out.print(f"file: {escape(str(written))}", soft_wrap=True, highlight=False)
    for note in federation.notes:
        out.print(f"note: {escape(note)}", soft_wrap=True, highlight=False)
    say_cautions(cautions(federation))
    if drawn is not None:
        out.print(f"\npicture: {escape(str(drawn))}", soft_wrap=True, highlight=False)


class _Source(TypedDict):
    """What `polyfed data list` says of a data source."""

    what: str
    published: bool
    there: bool
    state: str
    licence: str
    missing: NotRequired[list[str]]
    megabytes: NotRequired[float | None]


def _sources() -> dict[str, _Source]:
    from polyfed.data import sources
    from polyfed.data.sources.catalogue import DATASETS, EMBEDDED
    from polyfed.data.sources.published import data_folder

    rows: dict[str, _Source] = {}
    for name, (what, _) in sources().items():
        row: _Source = {
            "what": what,
            "published": name in DATASETS,
            "there": name in EMBEDDED,
            "state": "embedded" if name in EMBEDDED else "your files",
            "licence": EMBEDDED.get(name, "yours"),
        }
        if name in DATASETS:
            dataset = DATASETS[name]
            row["missing"] = dataset.missing(data_folder())
            row["there"], row["licence"] = not row["missing"], dataset.licence
            row["state"] = dataset.state(data_folder())
            row["megabytes"] = round(dataset.size / 1e6, 1) or None
        rows[name] = row
    return rows
