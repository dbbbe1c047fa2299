"""`polyfed deploy init --from`: a project that trains across sites what `polyfed advise` advised."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.core.files import as_toml, write_text
from polyfed.data import Federation
from polyfed.deploy.project import make_project
from polyfed.deploy.protocol.finish import MODELS
from polyfed.deploy.protocol.names import is_name
from polyfed.deploy.settings import RUN_KEYS, read_toml, server_settings
from polyfed.studies.config import Config, Method, as_table, read_config

SPLIT_KEYS = ("target", "validation", "test", "seed", "classes")
"""What a site's [data] takes over, so that its split is that of the advice."""


def project_from_advice(advice: Path, folder: Path, host: str, port: int, with_rows: bool = False) -> None:
    """Write the project; `with_rows` gives every site its rows of the advice's table."""
    config, deploy = _read(advice)
    federation = config.federation
    if not isinstance(federation, Federation) or config.data["source"] not in ("csv", "parquet"):
        raise PolyfedError(f"{advice}: its rows are no csv or parquet table, from which sites' files could follow")
    sites = list(federation.clients)
    for site in sites:
        if not is_name(site) or site == "server":
            raise PolyfedError(f"{advice}: {site!r} can be no site's name; rename it in the table")
    sections = _server_sections(config, config.methods[-1], federation, deploy)
    make_project(folder, sites, host, port)
    path = folder / "server" / "server.toml"
    sections["federation"] = read_toml(path)["federation"]
    server_settings(sections, str(path))
    write_text(path, as_toml(sections))
    for site in sites:
        _write_data_section(folder / site / "site.toml", config.data)
    if with_rows:
        _write_rows(config.data, folder, sites)


def _read(advice: Path) -> tuple[Config, dict[str, str]]:
    """The config of an advice, and what each site deploys."""
    try:
        told = json.loads((advice / "advice.json").read_text())
        deploy = {str(site["client"]): str(site["deploy"]) for site in told["sites"]}
    except FileNotFoundError:
        raise PolyfedError(f"{advice}: no advice.json here; `polyfed advise` writes it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolyfedError(f"{advice / 'advice.json'}: cannot be read: {error!r}") from None
    for site, model in deploy.items():
        if model not in MODELS:
            raise PolyfedError(
                f"{advice / 'advice.json'}: site '{site}' deploys {model!r}, expected {', '.join(MODELS)}"
            )
    return read_config(advice / "config.toml"), deploy


def _server_sections(config: Config, method: Method, federation: Federation, deploy: dict[str, str]) -> dict[str, Any]:
    resolved = config.resolved(method)
    tables = {key: config.data[key] for key in ("columns", "min_count", "prepare") if config.data.get(key) is not None}
    if federation.preparation is not None:
        tables["features"] = [column.name for column in federation.preparation.columns]
    finish: dict[str, Any] = {"sites": {site: model for site, model in deploy.items() if model != "personal"}}
    tune = config.finetune(method.algorithm) if method.finetune else None
    if tune is not None:
        finish |= {f"finetune_{name}": value for name, value in as_table(tune).items()}
    alone = next((as_table(other.algorithm) for other in config.methods if other.algorithm.name == "local"), None)
    if alone is not None:
        finish["alone"] = alone
    algorithm = {key: value for key, value in resolved["algorithm"].items() if key not in ("label", "finetune")}
    run = {key: value for key, value in resolved["run"].items() if key in RUN_KEYS}
    return {
        "federation": {},
        "data": tables,
        "problem": resolved["problem"],
        "algorithm": algorithm,
        "run": run,
        "deploy": finish,
    }


def _write_data_section(path: Path, data: dict[str, Any]) -> None:
    """[data] of a site.toml with the advice's target and split; the comments around it stay."""
    about = {"source": data["source"], "path": f"data.{data['source']}"}
    about |= {key: data[key] for key in SPLIT_KEYS if data.get(key) is not None}
    text = path.read_text()
    start, end = text.index("[data]"), text.index("[columns]")
    lines = [text[start:].splitlines()[0], *as_toml(about).splitlines()]
    text = text[:start] + "\n".join(lines) + "\n\n" + text[end:]
    tomllib.loads(text)
    write_text(path, text)


def _write_rows(data: dict[str, Any], folder: Path, sites: list[str]) -> None:
    """Each site's rows, without the client column, and without columns that it has no value of."""
    from polyfed.data.formats.tables import read_table

    client = data["client"]
    dialect: Any = {key: data[key] for key in ("separator", "encoding", "decimal") if data.get(key) is not None}
    frame: Any = read_table(Path(data["path"]), data["source"], [client], dialect)
    for site in sites:
        own = frame[frame[client].astype("str") == site].drop(columns=client).dropna(axis=1, how="all")
        path = folder / site / f"data.{data['source']}"
        own.to_csv(path, index=False) if data["source"] == "csv" else own.to_parquet(path, index=False)
