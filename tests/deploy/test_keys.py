"""Certificates: when they are said to end, and that new ones go with old ones."""

from __future__ import annotations

import datetime
import ssl
from typing import Any

import pytest
from typer.testing import CliRunner

from polyfed.cli.deploy import deploy_app
from polyfed.core.errors import PolyfedError
from polyfed.deploy.keys import ending, read_certificate, read_private_key, renew_certificates, site_context
from polyfed.deploy.project import make_project


def shake_hands(server_folder, site_folder, site) -> str:
    """A TLS handshake in memory; returns the site's name as the server sees it."""
    certificates = server_folder / "certificates"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    key = read_private_key(site_folder / f"{site}.key")
    own = site_context(site_folder / "ca.pem", site_folder / f"{site}.pem", key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = own.wrap_bio(back, there, server_hostname="fed.example.org")
    server = context.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = server.getpeercert()
    assert seen is not None
    subject: Any = seen["subject"]
    return dict(pair[0] for pair in subject)["commonName"]


@pytest.fixture
def project(tmp_path):
    make_project(tmp_path / "project", ["north", "south"], "fed.example.org")
    return tmp_path / "project"


def test_a_certificate_is_said_to_end_thirty_days_ahead(project) -> None:
    paths = [project / "north" / "north.pem", project / "north" / "ca.pem", project / "none.pem"]
    end = read_certificate(paths[0]).not_valid_after_utc
    day = datetime.timedelta(days=1)
    assert ending(paths, end - 31 * day) == []
    soon = ending(paths, end - 12.5 * day)
    assert len(soon) == 2
    assert f"north.pem: this certificate ends on {end:%Y-%m-%d}, in 12 days" in soon[0]
    assert "polyfed deploy renew" in soon[0]
    assert f"ended on {end:%Y-%m-%d}" in ending(paths, end + day)[0]


def test_all_certificates_are_renewed_by_one_command_and_go_with_those_of_before(
    project, tmp_path, monkeypatch
) -> None:
    old = {path: read_certificate(path) for path in project.rglob("*.pem")}
    away = tmp_path / "away"
    (project / "south").rename(away)  # this site's folder is elsewhere
    done = CliRunner().invoke(deploy_app, ["renew", str(project / "server")])
    assert done.exit_code == 0, done.output
    assert "to site 'south'" in done.output
    server = project / "server"
    for path in (server / "certificates" / "server.pem", project / "north" / "north.pem", project / "north" / "ca.pem"):
        new = read_certificate(path)
        assert new.serial_number != old[path].serial_number
        assert new.public_key() == old[path].public_key()
    assert shake_hands(server, project / "north", "north") == "north"
    assert shake_hands(server, away, "south") == "south"  # still with its old certificates
    (away / "south.pem").write_bytes((server / "certificates" / "south.pem").read_bytes())
    (away / "ca.pem").write_bytes((server / "certificates" / "ca.pem").read_bytes())
    assert shake_hands(server, away, "south") == "south"


def test_without_the_authoritys_key_nothing_is_renewed(project) -> None:
    certificates = project / "server" / "certificates"
    before = (certificates / "server.pem").read_bytes()
    (certificates / "ca.key").unlink()
    with pytest.raises(PolyfedError, match="certificate and key cannot be read"):
        renew_certificates(certificates)
    assert (certificates / "server.pem").read_bytes() == before
