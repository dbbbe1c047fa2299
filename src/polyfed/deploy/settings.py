"""The two config files of a deployed run: server.toml, and a site.toml for each site."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyfed import data
from polyfed.algorithms.contract import get_algorithm
from polyfed.core.errors import PolyfedError, suggestion
from polyfed.core.files import JsonObject
from polyfed.data import Federation, Population
from polyfed.data.formats.table_rows import TableRows
from polyfed.data.formats.tables import read_table
from polyfed.data.tables.cells import spelt
from polyfed.deploy.configs import PORT, RUN_KEYS
from polyfed.deploy.protocol.aggregate import check_aggregate
from polyfed.deploy.protocol.finish import Finish
from polyfed.deploy.protocol.names import checked_name, checked_site, checked_sites
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.deploy.protocol.tables import TableSettings
from polyfed.deploy.protocol.terms import DeployedRun
from polyfed.deploy.secure.server_sum import check_secure
from polyfed.deploy.secure.signed_keys import KnownSites
from polyfed.deploy.site.policy import RunPolicy
from polyfed.deploy.site.site import Site, SitePolicy
from polyfed.deploy.site.table import SiteTable, with_own_readings
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.accounting import Accountant
from polyfed.engine.privacy.mechanism import privacy_settings
from polyfed.engine.robust.settings import aggregate_settings
from polyfed.studies.config import algorithm_from, check_problem
from polyfed.studies.run_settings import run_settings

SERVER_SECTIONS = ("federation", "data", "problem", "algorithm", "run", "deploy", "privacy", "aggregate")
SITE_SECTIONS = ("site", "data", "columns", "allow", "policy")
TABLE_KEYS = ("validation", "test", "features", "seed", "classes", "separator", "encoding", "decimal")
ROSTER = "roster"
"""The folder beside site.toml with the other sites' public keys, NAME.pub."""
CLIENT_COLUMN = "(site)"
"""The client column that is added to a table of one site."""

Section = JsonObject
"""A section of a TOML file."""


@dataclass(frozen=True)
class FederationSettings:
    """The section [federation] of server.toml, without its rules."""

    sites: tuple[str, ...]
    run: str = "run"
    host: str = "127.0.0.1"
    """the address to listen on"""
    port: int = PORT


def server_settings(
    sections: Mapping[str, object], where: str
) -> tuple[FederationSettings, DeployedRun, FederationRules]:
    """Check the sections of server.toml; every mistake is named."""
    _refuse_unknown(sections, SERVER_SECTIONS, where, "section")
    given = _section(sections, "federation", where)
    rules = {name: given.pop(name) for name in _names(FederationRules) if name in given}
    _refuse_unknown(given, (*_names(FederationSettings), *_names(FederationRules)), f"{where}: [federation]", "key")
    sites = given.pop("sites", None)
    if not isinstance(sites, list):
        raise PolyfedError(f"{where}: federation.sites must be a list of names, found {sites!r}")
    checked_sites(sites, f"{where}: federation.sites")
    _check_types(FederationSettings, given, f"{where}: federation")
    checked_name(given.get("run", "run"), f"{where}: federation.run")
    _check_types(FederationRules, rules, f"{where}: federation")
    section = _section(sections, "run", where)
    _refuse_unknown(section, RUN_KEYS, f"{where}: [run]", "key")
    run = run_settings(section, where)
    problem = check_problem(_section(sections, "problem", where), where)
    if problem.get("loss") is None:
        raise PolyfedError(f"{where}: problem.loss is missing: softmax, logistic, tags or squared")
    method = algorithm_from(_section(sections, "algorithm", where), where=where)
    federation = FederationSettings(tuple(sites), **given)
    options: JsonObject = {name: getattr(run, name) for name in RUN_KEYS}
    privacy = privacy_settings(_section(sections, "privacy", where) if "privacy" in sections else None, where)
    if privacy is not None:
        Accountant(privacy, sampling(run.participation, len(sites)))
    if rules.get("secure"):
        check_secure(method, sampling(run.participation, len(sites)))
    rule = aggregate_settings(_section(sections, "aggregate", where) if "aggregate" in sections else None, where)
    if rule is not None:
        check_aggregate(rule, FederationRules(**rules), privacy is not None, sampling(run.participation, len(sites)))
    tables = _section(sections, "data", where)
    _refuse_unknown(tables, _names(TableSettings), f"{where}: [data]", "key")
    finish = Finish.read(
        _section(sections, "deploy", where), _section(sections, "algorithm", where), tuple(sites), where
    )
    more: JsonObject = {
        "privacy": privacy,
        "aggregate": rule,
        "finish": finish,
        "tables": TableSettings.of(tables, f"{where}: data."),
    }
    deployed = DeployedRun(federation.run, federation.sites, problem, method, **options, **more)
    return federation, deployed, FederationRules(**rules)


@dataclass(frozen=True)
class SiteSettings:
    """A checked site.toml; paths are relative to its folder."""

    name: str
    server: str
    """the server's address, host:port"""
    certificate: Path
    """the authority's certificate, with which the server proves who it is"""
    key: Path
    """the site's private key, with which it proves who it is"""
    own_certificate: Path
    """the certificate that the operator issued for this key: without it the server does not listen"""
    folder: Path
    data: Section
    columns: dict[str, float]
    allow: SitePolicy
    measure: bool = True
    """measure the models on this site's rows at the end, for this site"""
    policy: RunPolicy = dataclasses.field(default_factory=RunPolicy)

    def site(self) -> Site:
        """The site with its rows."""
        rows = site_rows(self.name, self.data, self.columns)
        known = KnownSites.read(self.key, self.folder / ROSTER, self.policy.pinned_sites)
        return Site(self.name, rows, self.folder, self.allow, self.measure, self.policy, known)


def address_of(host: str, port: int) -> str:
    """host:port; the colons of an IPv6 address stand in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def site_settings(path: Path, connects: bool = True) -> SiteSettings:
    """Read and check a site.toml, or the one in a folder; one that never `connects` needs neither server nor keys."""
    path = path / "site.toml" if path.is_dir() else path
    sections = read_toml(path)
    _refuse_unknown(sections, SITE_SECTIONS, str(path), "section")
    about = _section(sections, "site", str(path))
    keys = ("name", "server", "certificate", "key")
    _refuse_unknown(about, (*keys, "own_certificate", "measure"), f"{path}: [site]", "key")
    measure = about.get("measure", True)
    if not isinstance(measure, bool):
        raise PolyfedError(f"{path}: site.measure must be true or false, found {measure!r}")
    about.setdefault("own_certificate", f"{about.get('name')}.pem")
    if not connects:
        about = {**dict.fromkeys(keys, "none"), **about}
    for key in (*keys, "own_certificate"):
        if not isinstance(about.get(key), str) or not about[key]:
            raise PolyfedError(f"{path}: site.{key} must be a word, found {about.get(key)!r}")
    checked_site(about["name"], f"{path}: site.name")
    source = _section(sections, "data", str(path))
    if "source" not in source:
        raise PolyfedError(f"{path}: data.source is missing; `polyfed data list` names the sources")
    folder = path.parent.resolve()
    if isinstance(source.get("path"), str):
        source["path"] = str((folder / source["path"]).resolve())
    columns = _section(sections, "columns", str(path))
    for name, value in columns.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PolyfedError(f"{path}: columns.{name} must be a number, found {value!r}")
    allow = _section(sections, "allow", str(path))
    _refuse_unknown(allow, _names(SitePolicy), f"{path}: [allow]", "key")
    _check_types(SitePolicy, allow, f"{path}: allow")
    policy = _policy(_section(sections, "policy", str(path)), str(path))
    files = [folder / about[name] for name in ("certificate", "key", "own_certificate")]
    for file in files:
        if connects and not file.is_file():
            raise PolyfedError(f"{path}: {file} does not exist")
    certificate, key, own = files
    place = (certificate, key, own, folder)
    return SiteSettings(about["name"], about["server"], *place, source, columns, SitePolicy(**allow), measure, policy)


def _policy(section: Section, where: str) -> RunPolicy:
    """The section [policy] of a site.toml, checked."""
    _refuse_unknown(section, _names(RunPolicy), f"{where}: [policy]", "key")
    algorithms = section.pop("algorithms", [])
    if not isinstance(algorithms, list):
        raise PolyfedError(f"{where}: policy.algorithms must be a list of names, found {algorithms!r}")
    for name in algorithms:
        get_algorithm(name)
    if section.get("changes", "ask") not in ("ask", "allow"):
        raise PolyfedError(f"{where}: policy.changes must be 'ask' or 'allow', found {section['changes']!r}")
    _check_types(RunPolicy, {key: value for key, value in section.items() if key != "noise"}, f"{where}: policy")
    noise = section.get("noise", 0.0)
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not noise >= 0:
        raise PolyfedError(f"{where}: policy.noise must be a number, at least 0, found {noise!r}")
    return RunPolicy(tuple(algorithms), **section)


def site_rows(name: str, source: Section, columns: dict[str, float]) -> Federation | SiteTable:
    """This site's rows. Those of a table are prepared when the sites have agreed on its columns.

    A table without a client column is all this site's; of one with it the site takes its own part.
    """
    options = dict(source)
    kind = options.pop("source")
    given = {key: np.array([float(value)]) for key, value in columns.items()}
    if kind in ("csv", "parquet"):
        return _site_table(name, kind, options, given)
    rows = data.load(kind, **options)
    if isinstance(rows, Federation) and rows.preparation is not None and not rows.preparation.is_plain:
        raise PolyfedError(
            f"site '{name}': a {kind} of tables has columns that must be prepared (categories, dates, missing values), "
            "which sites do with a csv or parquet file; give it one of these, or columns of numbers without gaps"
        )
    if len(rows) > 1 or isinstance(rows, Population):
        rows = rows.select([rows.index(name)])
    return dataclasses.replace(rows, clients=(name,), columns={**rows.columns, **given})


def _site_table(name: str, kind: str, options: Section, columns: dict[str, np.ndarray]) -> SiteTable:
    path, client, said = Path(str(options.pop("path", ""))), options.pop("client", None), options.pop("columns", None)
    _refuse_unknown(options, ("target", *TABLE_KEYS), f"site '{name}': [data]", "key")
    if "target" not in options:
        raise PolyfedError(f"site '{name}': data.target is missing: the column to predict")
    if not path.is_file():
        raise PolyfedError(f"{path}: no such file")
    dialect: Any = {key: options.pop(key) for key in ("separator", "encoding", "decimal") if key in options}
    frame: Any = read_table(path, kind, [] if client is None else [client], dialect)
    if client is not None:
        if client not in frame.columns:
            raise PolyfedError(f"{path}: there is no client column {client!r}")
        frame = frame[frame[client].map(spelt, na_action="ignore") == name].drop(columns=client)
        if not len(frame):
            raise PolyfedError(f"{path}: no row of column {client!r} is {name!r}")
    frame = with_own_readings(frame, said, f"{path}: ").assign(**{CLIENT_COLUMN: name})
    rows = TableRows.of(frame, client=CLIENT_COLUMN, origin=f"{path}: ", **options)
    about = {"name": kind, "path": str(path), "client": CLIENT_COLUMN, "target": options["target"]}
    return SiteTable(rows, columns, about)


def read_toml(path: Path) -> JsonObject:
    """The sections of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise PolyfedError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None


def _section(sections: Mapping[str, object], name: str, where: str) -> Section:
    """A copy of a section; empty if it is not there."""
    section = sections.get(name, {})
    if not isinstance(section, Mapping):
        raise PolyfedError(f"{where}: {name} must be a section, [{name}]")
    return dict(section)


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _refuse_unknown(given: Mapping[str, object], known: tuple[str, ...], where: str, what: str) -> None:
    for name in given:
        if name not in known:
            raise PolyfedError(f"{where}: unknown {what} '{name}'{suggestion(name, known)}")


def _check_types(kind: type, given: Section, where: str) -> None:
    """Each value must be of its default's type; where that is None, a number, and whole unless it says float."""
    for field in dataclasses.fields(kind):
        if field.name not in given:
            continue
        value, default = given[field.name], field.default
        wanted = (float if "float" in str(field.type) else int) if default is None else type(default)
        fine = isinstance(value, int | float) if wanted is float else isinstance(value, wanted)
        if not fine or (isinstance(value, bool) and wanted is not bool) or (wanted in (int, float) and value <= 0):
            words = {bool: "true or false", str: "a word", int: "a whole number above 0", float: "a number above 0"}
            raise PolyfedError(f"{where}.{field.name} must be {words[wanted]}, found {value!r}")
