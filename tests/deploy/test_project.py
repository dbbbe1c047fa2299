"""A project's folders: who gets whose public key."""

from __future__ import annotations

import shutil

from polyfed.deploy.flower.server_link import SuperLinkServer
from polyfed.deploy.project import add_site, make_project


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


def test_sites_that_missed_the_end_of_a_run_are_named(tmp_path) -> None:
    make_project(tmp_path / "study", ["north", "south", "west"], "127.0.0.1")
    link = SuperLinkServer(tmp_path / "study" / "server")
    assert link.without_result() == []  # no run has ended
    link.run_folder.mkdir(parents=True)
    (link.run_folder / "finished.json").write_text('{"south": null}')
    assert link.without_result() == ["north", "west"]
