"""`polyfed deploy init --from`: a project that trains across sites what `polyfed advise` advised."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.core.files import as_toml, write_text
from polyfed.data import Federation
from polyfed.data.formats.folder import KINDS
from polyfed.data.tables.cells import spelt
from polyfed.deploy.configs import RUN_KEYS, has_no_keys, refuse_filled, write_configs
from polyfed.deploy.protocol.finish import MODELS
from polyfed.deploy.protocol.names import is_site
from polyfed.studies.advice.contenders import ALONE
from polyfed.studies.config import Config, Method, as_table, read_config

SPLIT_KEYS = ("target", "validation", "test", "seed", "classes")
"""What a site's [data] takes over, so that its split is that of the advice."""
TABLE_KEYS = ("columns", "min_count", "prepare")
TABLES = ("csv", "parquet", "folder")
"""The sources from which sites' own files can follow."""
ROWS = "rows"
RENAMED = """
These sites have other names here, since a folder cannot have theirs. Batches follow from names, so the numbers are not
quite those of the simulation.

| site | here |
| --- | --- |
{rows}"""
TAKES_NO_PART = """
`{site}/` is a site apart: it takes no part in the federation, and has no key. Its `alone.toml` trains its own model.
"""
APART = """# Site '{site}' trains alone: the advice is that the others train without it. Nothing leaves it.
# Its table is {file}.
#
#     polyfed run alone.toml --out model
#     polyfed predict model NEW-ROWS.csv --client '{site}'

"""


def write_project(advice: Path, folder: Path, federation: Federation | None = None) -> None:
    """The project without keys: configs for the server and the sites. `federation`: the advice's, if it is at hand.

    Sites apart are no part of the federation: each gets a folder with the config that trains its own model.
    """
    refuse_filled(folder)
    config, deploy, apart = _read(advice)
    if federation is not None and not apart:
        config = dataclasses.replace(config, _federation=federation)
    rows = config.federation
    if not isinstance(rows, Federation) or config.data["source"] not in TABLES:
        raise PolyfedError(f"{advice}: its rows are no csv or parquet table, from which sites' files could follow")
    named = folder_names([*rows.clients, *apart])
    files = {site: _file(config.data, site) for site in named}
    told = {named[site]: deploy[site] for site in rows.clients}
    sections = _server_sections(config, config.methods[-1], rows, told)
    write_configs(folder, list(told))
    path = folder / "server" / "server.toml"
    write_text(path, as_toml(sections | {"federation": tomllib.loads(path.read_text())["federation"]}))
    for site in rows.clients:
        _write_data_section(folder / named[site] / "site.toml", config.data, files[site])
    renamed = [f"| {site} | `{name}/` |\n" for site, name in named.items() if site != name]
    notes = [RENAMED.format(rows="".join(renamed))] if renamed else []
    if apart:
        own = read_config(advice / "alone.toml")
        for site in apart:
            _write_apart(folder / named[site], own, named[site], files[site])
            notes.append(TAKES_NO_PART.format(site=named[site]))
    readme = folder / "README.md"
    write_text(readme, readme.read_text() + "".join(notes))


def project_from_advice(advice: Path, folder: Path, host: str, port: int, with_rows: bool = False) -> None:
    """Write the project with its keys, or make those of one that has none yet.

    `with_rows` gives every site its rows of the advice's table.
    """
    from polyfed.deploy.project import add_keys
    from polyfed.deploy.settings import read_toml, server_settings

    if not has_no_keys(folder):
        write_project(advice, folder)
    path = folder / "server" / "server.toml"
    server_settings(read_toml(path), str(path))
    add_keys(folder, host, port)
    if with_rows:
        _write_rows(advice, folder)


def folder_names(sites: Sequence[str]) -> dict[str, str]:
    """Every site's name in a project. Most keep theirs; one that cannot be a folder's name gets one like it."""
    found: dict[str, str] = {}
    for site in sorted(sites, key=lambda site: not is_site(site)):  # those that can keep theirs do
        plain = re.sub(r"[^\w .-]+", "-", site).strip(" .-")[:56].rstrip(" .-") or "site"
        names = [site] if is_site(site) else [plain]
        names += [f"{plain}-{number}" for number in range(2, len(sites) + 2)]
        taken = {name.casefold() for name in found.values()}
        found[site] = next(name for name in names if is_site(name) and name.casefold() not in taken)
    return {site: found[site] for site in sites}


def _read(advice: Path) -> tuple[Config, dict[str, str], list[str]]:
    """The config of an advice, what each site deploys, and the sites that the others train without."""
    try:
        told = json.loads((advice / "advice.json").read_text())
        deploy = {str(site["client"]): str(site["deploy"]) for site in told["sites"]}
        method, apart = str(told["method"]), [str(site) for site in told.get("apart", [])]
    except FileNotFoundError:
        raise PolyfedError(f"{advice}: no advice.json here; `polyfed advise` writes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolyfedError(f"{advice / 'advice.json'}: cannot be read: {error!r}") from None
    for site, model in deploy.items():
        if model not in MODELS:
            raise PolyfedError(
                f"{advice / 'advice.json'}: site '{site}' deploys {model!r}, expected {', '.join(MODELS)}"
            )
    if method == ALONE:
        raise PolyfedError(
            f"{advice}: there is nothing to deploy across sites: every site is to use its own model, which "
            f"`polyfed compare {advice / 'config.toml'}` trains; the advice is: {told.get('answer', 'stay alone')}"
        )
    return read_config(advice / "config.toml"), deploy, apart


def _write_apart(folder: Path, own: Config, site: str, file: Path) -> None:
    """alone.toml of a site apart, and a folder for its rows: with one file, named as the site."""
    (folder / ROWS).mkdir(parents=True)
    data = {"source": "folder", "path": ROWS}
    data |= {key: own.data[key] for key in (*SPLIT_KEYS, *TABLE_KEYS) if own.data.get(key) is not None}
    sections = {"data": data, **_training_sections(own, own.methods[-1])}
    place = Path(ROWS, f"{site}{file.suffix}")
    write_text(folder / "alone.toml", APART.format(site=site, file=place) + as_toml(sections))


def _server_sections(config: Config, method: Method, federation: Federation, deploy: dict[str, str]) -> dict[str, Any]:
    tables = {key: config.data[key] for key in TABLE_KEYS if config.data.get(key) is not None}
    if federation.preparation is not None:
        tables["features"] = [column.name for column in federation.preparation.columns]
    finish: dict[str, Any] = {"sites": {site: model for site, model in deploy.items() if model != "personal"}}
    tune = config.finetune(method.algorithm) if method.finetune else None
    if tune is not None:
        finish |= {f"finetune_{name}": value for name, value in as_table(tune).items()}
    alone = next((as_table(other.algorithm) for other in config.methods if other.algorithm.name == "local"), None)
    if alone is not None:
        finish["alone"] = alone
    return {"federation": {}, "data": tables, **_training_sections(config, method), "deploy": finish}


def _training_sections(config: Config, method: Method) -> dict[str, Any]:
    """[problem], [algorithm] and [run], with every default filled in."""
    resolved = config.resolved(method)
    return {
        "problem": resolved["problem"],
        "algorithm": {key: value for key, value in resolved["algorithm"].items() if key not in ("label", "finetune")},
        "run": {key: value for key, value in resolved["run"].items() if key in RUN_KEYS},
    }


def _file(data: dict[str, Any], site: str) -> Path:
    """What a site's own table is called in its folder."""
    if data["source"] != "folder":
        return Path(f"data.{data['source']}")
    found = next(
        (p for p in sorted(Path(data["path"]).iterdir()) if p.stem == site and p.suffix.lower() in KINDS), None
    )
    if found is None or found.suffix.lower() == ".npz":
        raise PolyfedError(f"{data['path']}: site {site!r} has no .csv or .parquet file there")
    return Path(f"data{found.suffix}")


def _write_data_section(path: Path, data: dict[str, Any], file: Path) -> None:
    """[data] of a site.toml with the advice's target and split; the comments around it stay."""
    about: dict[str, Any] = {"source": KINDS[file.suffix.lower()], "path": str(file)}
    about |= {key: data[key] for key in SPLIT_KEYS if data.get(key) is not None}
    text = path.read_text()
    start, end = text.index("[data]"), text.index("[columns]")
    lines = [text[start:].splitlines()[0], *as_toml(about).splitlines()]
    text = text[:start] + "\n".join(lines) + "\n\n" + text[end:]
    tomllib.loads(text)
    write_text(path, text)


def _write_rows(advice: Path, folder: Path) -> None:
    """Each site's rows, without the client column, and without columns that it has no value of."""
    from polyfed.data.formats.tables import read_table

    config, deploy, apart = _read(advice)
    data = config.data
    named = folder_names([*(site for site in deploy if site not in apart), *apart])
    places = {site: folder / name / _file(data, site) for site, name in named.items()}
    for site in apart:
        folder.joinpath(named[site]).chmod(0o700)
        places[site] = folder / named[site] / ROWS / f"{named[site]}{places[site].suffix}"
    if data["source"] == "folder":
        for site, place in places.items():
            shutil.copyfile(Path(data["path"]) / f"{site}{place.suffix}", place)
        return
    client = data["client"]
    dialect: Any = {key: data[key] for key in ("separator", "encoding", "decimal") if data.get(key) is not None}
    frame: Any = read_table(Path(data["path"]), data["source"], [client], dialect)
    owner = frame[client].map(spelt, na_action="ignore")
    for site, path in places.items():
        own = frame[owner == site].drop(columns=client).dropna(axis=1, how="all")
        own.to_csv(path, index=False) if data["source"] == "csv" else own.to_parquet(path, index=False)
