"""A project as `polyfed deploy init` writes it, and mistakes in its two kinds of config."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import polyfed as pf
from polyfed.deploy.project import make_project
from polyfed.deploy.protocol.tables import TableSettings
from polyfed.deploy.settings import read_toml, server_settings, site_rows, site_settings
from polyfed.deploy.site.table import SiteTable


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project") / "study"
    make_project(folder, ["north", "south"], "127.0.0.1", 8443, example=True)
    return folder


def test_a_project_has_what_each_party_needs_and_secrets_only_where_they_belong(project) -> None:
    federation, run, rules = server_settings(read_toml(project / "server" / "server.toml"), "server.toml")
    assert federation.sites == run.sites == ("north", "south")
    assert run.method.name == "scafflix"
    assert rules.minimum == 1
    secrets = {path.relative_to(project).as_posix() for path in project.rglob("*.key")}
    assert secrets == {
        "server/certificates/server.key",
        "server/certificates/ca.key",
        "north/north.key",
        "south/south.key",
    }
    assert all((project / path).stat().st_mode & 0o077 == 0 for path in secrets)
    assert all((project / name).stat().st_mode & 0o077 == 0 for name in ("server", "north", "south"))
    site = site_settings(project / "north").site()
    assert site.name == "north"
    assert site.training_rows == 28
    with pytest.raises(pf.PolyfedError, match="not empty"):
        make_project(project, ["a"], "127.0.0.1")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "north"', 'nome = "north"', r"unknown key 'nome'"),
        ('source = "csv"', "", r"data.source is missing"),
        ("metrics = false", 'metrics = "no"', r"allow.metrics must be true or false, found 'no'"),
        ('key = "north.key"', 'key = "other.key"', r"other.key does not exist"),
        ("[columns]", "[columns]\nalpha = true", r"columns.alpha must be a number, found True"),
    ],
)
def test_a_mistake_in_a_sites_config_is_named(project, tmp_path, old, new, said) -> None:
    for path in (project / "north").iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "site.toml").read_text()
    assert old in text
    (tmp_path / "site.toml").write_text(text.replace(old, new))
    with pytest.raises(pf.PolyfedError, match=said):
        site_settings(tmp_path)


@pytest.mark.parametrize(
    ("section", "change", "said"),
    [
        ("federation", {"sites": ["a", "a"]}, "different names"),
        ("federation", {"sites": ["a", "A"]}, "different names, not in capitals alone, found a, A"),
        ("federation", {"sites": ["a", "../b"]}, "federation.sites: each of them must be a name"),
        ("federation", {"sites": ["a", "CA"]}, "cannot be called 'CA': that is the name of a file"),
        ("federation", {"deadline": 0}, "federation.deadline must be a number above 0, found 0"),
        ("federation", {"minimal": 2}, "unknown key 'minimal'"),
        ("problem", {"loss": None}, "problem.loss is missing"),
        ("run", {"eval_every": 2}, "unknown key 'eval_every'"),
        ("run", {"compute": "bfloat16"}, "run.compute = 'bfloat16' goes with dtype 'float32', found dtype 'float64'"),
        ("algorithm", {"name": "scaflix"}, "unknown algorithm 'scaflix'"),
    ],
)
def test_a_mistake_in_the_servers_config_is_named(project, section, change, said) -> None:
    sections = read_toml(project / "server" / "server.toml")
    sections[section] = {**sections[section], **change}
    with pytest.raises(pf.PolyfedError, match=said):
        server_settings(sections, "server.toml")


@pytest.mark.parametrize("section", ["federation", "problem", "algorithm", "run", "privacy"])
def test_a_section_that_is_no_table_is_named(project, section) -> None:
    sections = {**read_toml(project / "server" / "server.toml"), section: 3}
    with pytest.raises(pf.PolyfedError, match=rf"server.toml: {section} must be a section, \[{section}\]"):
        server_settings(sections, "server.toml")


def test_the_configs_that_the_docs_show_are_valid(tmp_path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    server, site, deploy = re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M)
    federation, run, _ = server_settings(tomllib.loads(server + deploy), "server.toml")
    assert run.finish.of("west") == "alone"
    assert federation.sites == ("north", "south", "west")
    (tmp_path / "site.toml").write_text(site)
    for name in ("ca.pem", "north.key", "north.pem"):
        (tmp_path / name).touch()
    assert isinstance(run.method, pf.algorithms.Scafflix)
    assert run.method.alpha in site_settings(tmp_path).columns


def test_a_site_takes_its_own_rows_of_a_table_and_says_alone_what_it_alone_knows(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("site,y,ward,age\n" + "".join(f"{'ab'[i % 2]},{i % 3 % 2},{'uvw'[i % 3]},-9\n" for i in range(60)))
    section = {"source": "csv", "path": str(path), "client": "site", "target": "y"}
    table = site_rows("a", {**section, "columns": {"age": {"missing": ["-9"]}, "ward": "skip"}}, {})
    assert isinstance(table, SiteTable)
    assert table.training_rows == 21
    assert {name: sums.present for name, sums in table.sums(TableSettings()).columns.items()} == {"age": 0}
    with pytest.raises(pf.PolyfedError, match=r"data.columns.ward: a site may say which words are missing, or skip"):
        site_rows("a", {**section, "columns": {"ward": "category"}}, {})
    with pytest.raises(pf.PolyfedError, match=r"no row of column 'site' is 'c'"):
        site_rows("c", section, {})
