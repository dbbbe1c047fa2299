"""Attacks on a federation of real processes: by strangers who reach the port, and by sites on each other."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import warnings
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
from flwr.app import ConfigRecord, RecordDict

from polyfed.core.errors import PolyfedError
from polyfed.deploy.keys import make_certificates, make_site_key, public_bytes, read_private_key, site_context
from polyfed.deploy.network import gate
from polyfed.deploy.network.processes import ChildProcess, environment, free_port
from polyfed.deploy.project import admit
from polyfed.deploy.protocol.envelope import Envelope
from tests.deploy.chaos.proxy import Proxy
from tests.deploy.expected import small
from tests.deploy.live import SITES, Live

FOREIGN_APP = """
import os
from pathlib import Path
from flwr.app import Message, RecordDict, ConfigRecord
from flwr.clientapp import ClientApp

Path(os.environ["STOLEN"]).write_text("a foreign app ran")
app = ClientApp()

@app.query()
def steal(message, context):
    return Message(RecordDict({"stolen": ConfigRecord({"key": "all of it"})}), reply_to=message)
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that listens; no site is up."""
    federation = Live(tmp_path_factory.mktemp("guarded") / "project", SITES[:2])
    with federation.link.start():
        yield federation


@contextmanager
def caller(live: Live, site: str, address: str | None = None, connect: bool = True) -> Iterator[httpx.Client]:
    """Who has a site's certificate and key, and says what it likes with them."""
    folder = live.folder / site
    context = site_context(folder / "ca.pem", folder / f"{site}.pem", read_private_key(folder / f"{site}.key"))
    with httpx.Client(base_url=f"https://{address or live.link.address}", verify=context, timeout=30) as client:
        if connect:
            client.headers[gate.SESSION] = client.post(gate.CONNECT).raise_for_status().text
        yield client


def test_a_stranger_with_the_authoritys_certificate_and_the_address_gets_no_answer_at_all(guarded) -> None:
    trusting = ssl.create_default_context(cafile=guarded.folder / "north" / "ca.pem")
    for path in (*gate.SERVED, "/v1/control/list-runs", "/health", "/docs", "/openapi.json"):
        with httpx.Client(verify=trusting) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            client.post(f"https://{guarded.link.address}{path}")
    plain, port = guarded.link.address.rsplit(":", 1)
    with socket.create_connection((plain, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/connect HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert connection.recv(64)[:4] != b"HTTP"
    log = (guarded.server / "logs" / "server.log").read_text()
    assert "a connection was refused: it has no certificate of a site" in log
    assert "a connection was refused: it does not speak TLS" in log


def test_a_certificate_of_another_authority_is_refused(guarded, tmp_path) -> None:
    """The stranger makes an authority of the same name, and a certificate for 'north' with it."""
    make_certificates(tmp_path / "server" / "certificates", ["127.0.0.1"])
    (tmp_path / "server" / "keys").mkdir()
    make_site_key(tmp_path / "north.key")
    (tmp_path / "north.pem").write_bytes(admit(tmp_path / "server", "north", tmp_path / "north.key.pub"))
    key = read_private_key(tmp_path / "north.key")
    context = site_context(guarded.folder / "north" / "ca.pem", tmp_path / "north.pem", key)
    with httpx.Client(verify=context) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        client.post(f"https://{guarded.link.address}/v1/connect")
    assert (
        "its certificate is not of this federation's authority" in (guarded.server / "logs" / "server.log").read_text()
    )


def test_a_site_does_not_speak_to_a_server_of_another_authority(guarded, tmp_path) -> None:
    """Someone answers in the server's place, under its name, with a certificate of an authority that they made."""
    make_certificates(tmp_path, ["127.0.0.1"])
    folder = guarded.folder / "north"
    context = site_context(tmp_path / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
    with httpx.Client(verify=context) as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        client.post(f"https://{guarded.link.address}/v1/connect")


def test_the_servers_certificate_does_not_serve_a_site(guarded) -> None:
    """Who steals the server's key cannot speak as a site with it."""
    context = ssl.create_default_context(cafile=guarded.server / "certificates" / "ca.pem")
    context.load_cert_chain(
        guarded.server / "certificates" / "server.pem", guarded.server / "certificates" / "server.key"
    )
    with httpx.Client(verify=context) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        client.post(f"https://{guarded.link.address}/v1/connect")


def test_who_sits_on_the_line_reads_nothing_and_a_changed_bit_ends_the_connection(guarded) -> None:
    """Everything between 'north' and the server goes through the attacker's hands, in both directions."""
    proxy, seen = Proxy(guarded.link.federation.port), bytearray()
    key = read_private_key(guarded.folder / "north" / "north.key")
    public = public_bytes(key.public_key())
    log = guarded.server / "logs" / "server.log"

    def read(piece: bytes) -> bytes:
        seen.extend(piece)
        return piece

    def flip(piece: bytes) -> bytes:
        return piece[:-1] + bytes([piece[-1] ^ 1])

    try:
        proxy.change = read
        with caller(guarded, "north", f"127.0.0.1:{proxy.port}") as client:
            session = client.headers[gate.SESSION]
            assert len(seen) > 2000
            hidden = (public, b64encode(public), session.encode(), gate.CONNECT.encode(), b"HTTP/1.1")
            assert not any(word in seen for word in hidden)
            guarded.wait(lambda: guarded.online() == ["north"])
            before = len(log.read_text())
            proxy.change = flip
            with pytest.raises(httpx.TransportError):
                client.post(gate.LEAVE)
        assert guarded.online() == ["north"]
        proxy.change = bytes
        with caller(guarded, "north", f"127.0.0.1:{proxy.port}", connect=False) as client:
            client.post(gate.LEAVE, headers={gate.SESSION: session}).raise_for_status()
        guarded.wait(lambda: guarded.online() == [])
        assert "Traceback" not in log.read_text()[before:]
    finally:
        proxy.close()


def test_a_version_of_tls_that_is_known_to_be_weak_is_refused(guarded) -> None:
    folder = guarded.folder / "north"
    for version, good in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
        context = site_context(folder / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
        context.set_ciphers("ALL:@SECLEVEL=0")  # with which OpenSSL would speak it on this side
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = context.maximum_version = version
        address = ("127.0.0.1", guarded.link.federation.port)
        refusal = nullcontext() if good else pytest.raises((ssl.SSLError, ConnectionResetError))
        plain = socket.create_connection(address, timeout=10)
        with refusal, plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            assert tls.version() == "TLSv1.2"
    log = (guarded.server / "logs" / "server.log").read_text()
    assert "a connection was refused: TLS failed (UNSUPPORTED_PROTOCOL)" in log


def test_a_site_can_neither_control_runs_nor_register_nor_fetch_apps(guarded) -> None:
    with caller(guarded, "north") as client:
        for path in ("control/start-run", "control/stop-run", "fleet/register-node", "fleet/get-fab", "runtime/task"):
            assert client.post(f"/v1/{path}").status_code == 404
        assert client.get("/docs").status_code == 404
        assert client.get(gate.NEXT).status_code == 404
        assert client.post(f"{gate.NEXT}/..").status_code == 404
        for session in (b"", b"0" * 32, b"\xe4" * 32):
            assert client.post(gate.NEXT, headers={gate.SESSION.encode(): session}).status_code == 409


def test_a_request_that_does_not_say_how_long_it_is_or_is_too_long_is_refused_before_it_is_read(guarded) -> None:
    """In chunks a body has no end; a length beside them says nothing."""
    folder = guarded.folder / "north"
    context = site_context(folder / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
    chunked, endless = "Transfer-Encoding: chunked\r\n", f"Content-Length: {2**40}\r\n"
    framings = [(gate.ANSWER, framing) for framing in (f"Content-Length: 10\r\n{chunked}", chunked, endless, "")]
    for path, framing in (*framings, (gate.BEAT, "Content-Length: 10\r\n")):
        plain = socket.create_connection(("127.0.0.1", guarded.link.federation.port), timeout=10)
        with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            tls.sendall(f"POST {path} HTTP/1.1\r\nHost: {guarded.link.address}\r\n{framing}\r\n".encode())
            assert tls.recv(64).startswith(b"HTTP/1.1 413")


def test_a_site_is_who_its_key_says_and_anothers_certificate_or_session_is_of_no_use(guarded) -> None:
    folder = guarded.folder
    key = read_private_key(folder / "north" / "north.key")
    with pytest.raises(PolyfedError, match="not certificates that go with this site's key"):
        site_context(folder / "south" / "ca.pem", folder / "south" / "south.pem", key)
    with caller(guarded, "north") as north, caller(guarded, "south") as south:
        stolen = {gate.SESSION: south.headers[gate.SESSION]}
        assert north.post(gate.NEXT, headers=stolen).status_code == 409
        assert north.post(gate.LEAVE, headers=stolen).status_code == 409
        assert south.post(gate.BEAT).status_code == 204
        with caller(guarded, "north") as again:  # who connects last is the site
            assert north.post(gate.BEAT).status_code == 409
            assert again.post(gate.BEAT).status_code == 204
    log = (guarded.server / "logs" / "server.log").read_text()
    assert "site 'north' was refused: it has not connected, or has connected again" in log


@pytest.mark.full
def test_a_key_that_the_operator_removed_is_refused_although_its_certificate_is_valid(tmp_path) -> None:
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("fedavg"), {"rounds": 1}, sites=["north"])
    with live.link.start(), caller(live, "south", connect=False) as client:
        assert client.post(gate.CONNECT).status_code == 403


@pytest.mark.full
def test_a_site_cannot_answer_for_another_nor_read_its_messages_nor_answer_twice(tmp_path) -> None:
    """'north' learns the ids of what 'south' was sent, as if it had read the server's memory."""
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("fedavg"), {"rounds": 1}, gather=20.0, largest=10_000.0)
    with live.link.start(), caller(live, "north") as north, caller(live, "south") as south:
        live.link.submit()
        came: dict[httpx.Client, httpx.Response] = {}

        def fetched() -> bool:
            for client in {north, south} - came.keys():
                given = client.post(gate.NEXT)
                came.update({client: given} if given.status_code == 200 else {})
            return len(came) == 2

        live.wait(fetched)
        theirs = {gate.MESSAGE: came[south].headers[gate.MESSAGE]}
        assert north.post(gate.NEXT).status_code == 204  # what south was sent is not in its mailbox
        answer = b"".join(Envelope("query", RecordDict({"about": ConfigRecord({"site": "south"})})).parts())
        assert north.post(gate.ANSWER, content=answer, headers=theirs).status_code == 403
        assert south.post(gate.ANSWER, content=bytes(10_001), headers=theirs).status_code == 413
        assert south.post(gate.ANSWER, content=answer, headers={gate.MESSAGE: "0" * 32}).status_code == 403
        assert south.post(gate.ANSWER, content=answer, headers=theirs).status_code == 204
        assert south.post(gate.ANSWER, content=answer, headers=theirs).status_code == 403
    log = (live.server / "logs" / "server.log").read_text()
    assert "site 'north' was refused: an answer to a message that it does not have" in log


@pytest.mark.full
def test_an_answer_that_is_begun_and_left_makes_room_for_the_next(tmp_path) -> None:
    """A site that begins one after another fills no memory, and one whose line broke can answer again."""
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("fedavg"), {"rounds": 1}, gather=20.0)
    folder, key = live.folder / "south", read_private_key(live.folder / "south" / "south.key")
    context = site_context(folder / "ca.pem", folder / "south.pem", key)
    with live.link.start(), caller(live, "north"), caller(live, "south") as south:
        live.link.submit()
        given: list[httpx.Response] = []
        live.wait(lambda: bool(given.append(south.post(gate.NEXT)) or given[-1].status_code == 200))
        heads = {gate.SESSION: south.headers[gate.SESSION], gate.MESSAGE: given[-1].headers[gate.MESSAGE]}
        lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
        head = f"POST {gate.ANSWER} HTTP/1.1\r\nHost: {live.link.address}\r\nContent-Length: 5000\r\n{lines}\r\n"
        with ExitStack() as stack:
            begun = []
            for _ in range(4):
                plain = stack.enter_context(socket.create_connection(("127.0.0.1", live.link.federation.port)))
                begun.append(stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1")))
                begun[-1].settimeout(20)
                begun[-1].sendall(head.encode() + bytes(1000))
            for line in begun[:3]:
                assert line.recv(64).startswith(b"HTTP/1.1 409")
            assert south.post(gate.ANSWER, content=b"x", headers=heads).status_code == 204
            assert begun[3].recv(64).startswith(b"HTTP/1.1 409")


def foreign_app(folder: Path) -> Path:
    (folder / "thief").mkdir(parents=True)
    (folder / "thief" / "__init__.py").write_text("")
    (folder / "thief" / "client.py").write_text(FOREIGN_APP)
    server = "from flwr.serverapp import ServerApp\napp = ServerApp()\n@app.main()\ndef main(grid, context): pass\n"
    (folder / "thief" / "server.py").write_text(server)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "thief"\nversion = "1.0.0"\ndescription = "x"\nlicense = "Apache-2.0"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "thief"\n[tool.flwr.app.components]\nserverapp = "thief.server:app"\n'
        'clientapp = "thief.client:app"\n'
    )
    return folder


@pytest.mark.full
def test_flowers_own_commands_do_nothing_to_a_federation_at_work(tmp_path) -> None:
    """`flwr run` of a foreign app, `flwr stop`, `flwr supernode register`, with ca.pem and the address."""
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("apfl"), {"rounds": 12})
    stolen = tmp_path / "stolen.txt"
    try:
        live.up()
        live.link.submit()
        live.wait(lambda: live.rounds() >= 1)
        home = tmp_path / "stranger"
        home.mkdir()
        authority = json.dumps(str(live.folder / "north" / "ca.pem"))
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{live.link.address}"\n'
            f"root-certificates = {authority}\n"
        )
        make_site_key(home / "fake.key")
        app = foreign_app(home / "app")
        flwr = str(Path(sys.executable).parent / "flwr")
        for words in (
            ["run", str(app), "x"],
            ["stop", "1", "x"],
            ["list", "x"],
            ["supernode", "register", str(home / "fake.key.pub"), "x", "--name", "north"],
        ):
            env = environment(home, STOLEN=str(stolen))
            done = subprocess.run([flwr, *words], env=env, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode != 0, done.stdout + done.stderr
        fake = ["--root-certificates", str(live.folder / "north" / "ca.pem"), "--max-retries", "1", "--port"]
        fake += [str(free_port()), "--auth-supernode-private-key", str(home / "fake.key")]
        node = ["flower-supernode", "--superlink", live.link.address, *fake]
        with ChildProcess(node, environment(home), home / "log") as child:
            live.wait(live.finished)
            child.wait(5.0)
            assert "RunningSite ID" not in child.log.read_text()
        live.assert_equal()
    finally:
        live.stop()
    assert not stolen.exists()
