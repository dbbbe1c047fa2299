"""A site's config, its rows, and a new site after training."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.new_site import join
from polyfed.deploy.project import make_project
from polyfed.deploy.settings import read_toml, server_settings, site_settings
from tests.deploy.loopback import Loopback


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project") / "study"
    make_project(folder, ["north", "south"], "127.0.0.1", 8443, example=True)
    return folder


def test_a_project_has_what_each_party_needs_and_secrets_only_where_they_belong(project) -> None:
    federated, plan, conduct = server_settings(read_toml(project / "server" / "server.toml"), "server.toml")
    assert federated.sites == plan.sites == ("north", "south")
    assert plan.method.name == "scafflix"
    assert conduct.minimum == 1
    secrets = {path.relative_to(project).as_posix() for path in project.rglob("*.key")}
    assert secrets == {"server/certificates/server.key", "north/north.key", "south/south.key"}
    assert all((project / path).stat().st_mode & 0o077 == 0 for path in secrets)
    site = site_settings(project / "north").site()
    assert site.name == "north"
    assert site.federation.clients == ("north",)
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


def test_the_configs_that_the_docs_show_are_valid(tmp_path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text()
    server, site = re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M)
    federated, plan, _ = server_settings(tomllib.loads(server), "server.toml")
    assert federated.sites == ("north", "south", "west")
    (tmp_path / "site.toml").write_text(site)
    for name in ("ca.pem", "north.key"):
        (tmp_path / name).touch()
    assert plan.method.alpha in site_settings(tmp_path).columns  # pyright: ignore[reportAttributeAccessIssue]


def test_sites_that_do_not_fit_together_are_named(three, loopback) -> None:
    grid: Loopback = loopback()
    odd = pf.Federation.from_arrays({"site-2": {"train": (np.ones((4, 7)), np.array([0, 1, 2, 0]))}}, classes=3)
    grid.sites["site-2"].federation = odd
    with pytest.raises(pf.PolyfedError, match=r"site 'site-2': features \(7,\), site 'site-0' has \(4,\)"):
        grid.serve({"name": "fedavg"})


def test_a_new_site_gets_its_model_from_what_was_published(three, loopback) -> None:
    grid: Loopback = loopback()
    server = grid.serve({"name": "fedavg", "batch": 4}, {"rounds": 2})
    rng = np.random.default_rng(1)
    rows = pf.Federation.from_arrays({"new": (rng.normal(size=(20, 4)), rng.integers(0, 3, 20))}, classes=3)
    found = join(grid.folder / "server" / "runs" / "study", rows)
    assert found.clients == ("new",)
    own, shared = np.asarray(found.personal("new")["w"]), np.asarray(server.params["w"])
    assert own.shape == shared.shape
    assert not np.allclose(own, shared)
    problem = found.problem
    assert problem.value(found.personal("new"), "new") < problem.value(server.params, "new")
    with pytest.raises(pf.PolyfedError, match="no published server here"):
        join(grid.folder, rows)
