"""A project's folders: who gets whose public key."""

from __future__ import annotations

import shutil

import pytest

import polyfed as pf
from polyfed.deploy.configs import has_no_keys, write_configs
from polyfed.deploy.from_advice import folder_names
from polyfed.deploy.network.server_link import ServerLink
from polyfed.deploy.project import add_keys, add_site, admit, make_project
from polyfed.deploy.protocol.names import checked_sites
from polyfed.deploy.settings import read_toml, server_settings, site_settings


def test_a_site_that_is_added_knows_the_others_keys_and_those_that_are_here_know_its_key(tmp_path) -> None:
    project = tmp_path / "project"
    make_project(project, ["north", "south", "west"], "127.0.0.1")
    shutil.rmtree(project / "west")  # it was sent to its operator
    add_site(project, "east")
    keys = {
        site: (project / "server" / "keys" / f"{site}.pub").read_text() for site in ("north", "south", "west", "east")
    }
    assert len(set(keys.values())) == 4
    for site in ("north", "south", "east"):
        pinned = {path.stem: path.read_text() for path in (project / site / "roster").iterdir()}
        assert pinned == {other: key for other, key in keys.items() if other != site}
    assert not (project / "west").exists()


@pytest.mark.parametrize("name", ["ca", "Server", "README.md", "../x", "north", "NORTH", "a/b", "a\n", ""])
def test_no_site_takes_the_name_of_a_file_of_the_server_or_of_another_site(tmp_path, name) -> None:
    """A site called 'ca' would be given the authority's certificate as its own, and the authority the site's."""
    project = tmp_path / "project"
    make_project(project, ["north", "south"], "127.0.0.1")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(pf.PolyfedError):
        make_project(tmp_path / "other", ["north", name], "127.0.0.1")
    with pytest.raises(pf.PolyfedError):
        add_site(project, name)
    if name.casefold() != "north":
        with pytest.raises(pf.PolyfedError):
            admit(project / "server", name, project / "server" / "keys" / "north.pub")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("host", ["ünï.org", 'a"b', "a b", "x\ny", "", "h" * 65])
def test_a_host_that_is_no_address_is_refused_before_anything_is_written(tmp_path, host) -> None:
    with pytest.raises(pf.PolyfedError, match="the server's host must be a name as in an address"):
        make_project(tmp_path / "project", ["north", "south"], host)
    assert not (tmp_path / "project").exists()


def test_a_project_without_keys_gets_them_with_the_servers_name_and_keeps_what_was_changed(tmp_path) -> None:
    project = tmp_path / "project"
    write_configs(project, ["north", "south"])
    assert has_no_keys(project)
    assert not [path for path in project.rglob("*") if path.suffix in (".key", ".pem", ".pub")]
    assert "polyfed deploy init . --host" in (project / "README.md").read_text()
    with pytest.raises(pf.PolyfedError, match=r"ca.pem does not exist; `polyfed deploy init \S+/project` makes it"):
        ServerLink(project / "server")
    config = project / "server" / "server.toml"
    config.write_text(config.read_text().replace("rounds = 10", "rounds = 33  # more"))
    with pytest.raises(pf.PolyfedError, match="the server's host must be a name"):
        add_keys(project, "a b")
    assert has_no_keys(project)
    add_keys(project, "fed.example.org", 9000)
    assert not has_no_keys(project)
    federation, run, _ = server_settings(read_toml(config), "server.toml")
    assert (federation.host, federation.port, run.rounds) == ("0.0.0.0", 9000, 33)
    assert "# more" in config.read_text()
    assert site_settings(project / "north").server == "fed.example.org:9000"
    readme = (project / "README.md").read_text()
    assert "for these names of the server: fed.example.org, localhost, 127.0.0.1" in readme
    assert "There are no keys here yet" not in readme


def test_names_that_no_folder_can_have_become_like_ones_and_stay_different() -> None:
    sites = ["St. Mary's", "a/b", "a-b", "a:b", "server", "///", "Süd", "süd", "x" * 80]
    named = folder_names(sites)
    assert list(named) == sites
    assert (named["St. Mary's"], named["a-b"], named["a/b"], named["a:b"]) == ("St. Mary-s", "a-b", "a-b-2", "a-b-3")
    assert (named["server"], named["///"], named["Süd"], named["süd"]) == ("server-2", "site", "Süd", "süd-2")
    checked_sites(list(named.values()), "sites")


@pytest.mark.parametrize(
    ("host", "address", "listen"),
    [
        ("::1", "[::1]:8443", "::1"),
        ("2001:db8::7", "[2001:db8::7]:8443", "::"),
        ("localhost", "localhost:8443", "127.0.0.1"),
        ("192.0.2.7", "192.0.2.7:8443", "0.0.0.0"),
    ],
)
def test_an_address_of_either_kind_is_one_that_sites_can_connect_to(tmp_path, host, address, listen) -> None:
    project = tmp_path / "project"
    make_project(project, ["north", "south"], host)
    add_site(project, "east")
    for site in ("north", "east"):
        assert site_settings(project / site).server == address
    assert server_settings(read_toml(project / "server" / "server.toml"), "server.toml")[0].host == listen
    link = ServerLink(project / "server").address
    assert link == {"::": "[::1]:8443", "0.0.0.0": "127.0.0.1:8443"}.get(listen, address.replace("localhost", listen))


def test_sites_that_missed_the_end_of_a_run_are_named(tmp_path) -> None:
    make_project(tmp_path / "study", ["north", "south", "west"], "127.0.0.1")
    link = ServerLink(tmp_path / "study" / "server")
    assert link.without_result() == []  # no run has ended
    link.run_folder.mkdir(parents=True)
    (link.run_folder / "finished.json").write_text('{"south": null}')
    assert link.without_result() == ["north", "west"]
