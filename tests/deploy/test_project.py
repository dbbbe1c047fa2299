"""A project's folders: who gets whose public key."""

from __future__ import annotations

import shutil

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
