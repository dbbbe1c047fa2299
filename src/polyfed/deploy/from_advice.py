"""`polyfed deploy init --from`: a project that trains across sites what `polyfed advise` advised."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.core.files import as_toml, write_text
from polyfed.data import Federation
from polyfed.data.formats.folder import KINDS
from polyfed.data.tables.cells import spelt
from polyfed.deploy.project import make_project
from polyfed.deploy.protocol.finish import MODELS
from polyfed.deploy.protocol.names import checked_sites
from polyfed.deploy.settings import RUN_KEYS, read_toml, server_settings
from polyfed.studies.advice.contenders import ALONE
from polyfed.studies.config import Config, Method, as_table, read_config

SPLIT_KEYS = ("target", "validation", "test", "seed", "classes")
"""What a site's [data] takes over, so that its split is that of the advice."""
TABLE_KEYS = ("columns", "min_count", "prepare")
ROWS = "rows"
APART = """# Site '{site}' trains alone: the advice is that the others train without it. Nothing leaves it.
# Its table is {file}.
#
#     polyfed run alone.toml --out model
#     polyfed predict model NEW-ROWS.csv --client '{site}'

"""


def project_from_advice(advice: Path, folder: Path, host: str, port: int, with_rows: bool = False) -> None:
    """Write the project; `with_rows` gives every site its rows of the advice's table.

    Sites apart are no part of the federation: each gets a folder with the config that trains its own model.
    """
    config, deploy, apart = _read(advice)
    federation = config.federation
    if not isinstance(federation, Federation) or config.data["source"] not in ("csv", "parquet", "folder"):
        raise PolyfedError(f"{advice}: its rows are no csv or parquet table, from which sites' files could follow")
    sites = list(federation.clients)
    files = {site: _file(config.data, site) for site in [*sites, *apart]}
    checked_sites(list(files), f"{advice}: the sites of its table")
    deploy = {site: deploy[site] for site in sites}
    sections = _server_sections(config, config.methods[-1], federation, deploy)
    make_project(folder, sites, host, port)
    path = folder / "server" / "server.toml"
    sections["federation"] = read_toml(path)["federation"]
    server_settings(sections, str(path))
    write_text(path, as_toml(sections))
    for site in sites:
        _write_data_section(folder / site / "site.toml", config.data, files[site])
    places = {site: folder / site / files[site] for site in sites}
    if apart:
        own = read_config(advice / "alone.toml")
        places |= {site: _write_apart(folder / site, own, site, files[site]) for site in apart}
    if with_rows and config.data["source"] == "folder":
        for site, place in places.items():
            shutil.copyfile(Path(config.data["path"]) / f"{site}{place.suffix}", place)
    elif with_rows:
        _write_rows(config.data, places)


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
            f"{advice}: it advises every site to stay alone, so that there is nothing to deploy across sites; "
            f"`polyfed compare {advice / 'config.toml'}` trains their own models"
        )
    return read_config(advice / "config.toml"), deploy, apart


def _write_apart(folder: Path, own: Config, site: str, file: Path) -> Path:
    """alone.toml of a site apart, and where its rows go: a folder with one file, named as the site."""
    (folder / ROWS).mkdir(parents=True)
    folder.chmod(0o700)
    data = {"source": "folder", "path": ROWS}
    data |= {key: own.data[key] for key in (*SPLIT_KEYS, *TABLE_KEYS) if own.data.get(key) is not None}
    sections = {"data": data, **_training_sections(own, own.methods[-1])}
    place = Path(ROWS, f"{site}{file.suffix}")
    write_text(folder / "alone.toml", APART.format(site=site, file=place) + as_toml(sections))
    return folder / place


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


def _write_rows(data: dict[str, Any], places: dict[str, Path]) -> None:
    """Each site's rows, without the client column, and without columns that it has no value of."""
    from polyfed.data.formats.tables import read_table

    client = data["client"]
    dialect: Any = {key: data[key] for key in ("separator", "encoding", "decimal") if data.get(key) is not None}
    frame: Any = read_table(Path(data["path"]), data["source"], [client], dialect)
    owner = frame[client].map(spelt, na_action="ignore")
    for site, path in places.items():
        own = frame[owner == site].drop(columns=client).dropna(axis=1, how="all")
        own.to_csv(path, index=False) if data["source"] == "csv" else own.to_parquet(path, index=False)
