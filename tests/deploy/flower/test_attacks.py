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
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.app import RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from polyfed.deploy.flower.grid import as_message
from polyfed.deploy.flower.processes import ChildProcess, environment, free_port
from polyfed.deploy.keys import make_certificates, make_site_key, public_bytes, read_private_key, site_context
from polyfed.deploy.project import admit
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
def caller(live: Live, certified: str, signing: str, address: str | None = None) -> Iterator[FleetHttpClient]:
    """Flower's client with one site's certificate, which signs its requests with another's key."""
    folder, key = live.folder / certified, read_private_key(live.folder / signing / f"{signing}.key")
    context = site_context(
        folder / "ca.pem", folder / f"{certified}.pem", read_private_key(folder / f"{certified}.key")
    )
    signer = NodeAuthHttpInterceptor(key, key.public_key())
    with FleetHttpClient(f"https://{address or live.link.address}", interceptors=[signer], verify=context) as client:
        yield client


def activated(live: Live, client: FleetHttpClient, site: str) -> Node:
    key = public_bytes(read_private_key(live.folder / site / f"{site}.key").public_key())
    return Node(node_id=client.ActivateNode(ActivateNodeRequest(public_key=key, heartbeat_interval=30)).node_id)


def refused(call: Any, request: Any) -> int:
    with pytest.raises(httpx.HTTPStatusError) as error:
        call(request)
    return error.value.response.status_code


def test_a_stranger_with_the_authoritys_certificate_and_the_address_gets_no_answer_at_all(guarded) -> None:
    trusting = ssl.create_default_context(cafile=guarded.folder / "north" / "ca.pem")
    for path in ("/v1/fleet/activate-node", "/v1/control/list-runs", "/health", "/docs", "/openapi.json"):
        with httpx.Client(verify=trusting) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            client.post(f"https://{guarded.link.address}{path}")
    plain, port = guarded.link.address.rsplit(":", 1)
    with socket.create_connection((plain, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/fleet/activate-node HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert connection.recv(64)[:4] != b"HTTP"
    log = (guarded.server / "logs" / "superlink.log").read_text()
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
        client.post(f"https://{guarded.link.address}/v1/fleet/activate-node")
    assert (
        "its certificate is not of this federation's authority"
        in (guarded.server / "logs" / "superlink.log").read_text()
    )


def test_a_site_does_not_speak_to_a_server_of_another_authority(guarded, tmp_path) -> None:
    """Someone answers in the server's place, under its name, with a certificate of an authority that they made."""
    make_certificates(tmp_path, ["127.0.0.1"])
    folder = guarded.folder / "north"
    context = site_context(tmp_path / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
    with httpx.Client(verify=context) as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        client.post(f"https://{guarded.link.address}/v1/fleet/activate-node")


def test_the_servers_certificate_does_not_serve_a_site(guarded) -> None:
    """Who steals the server's key cannot speak as a site with it."""
    context = ssl.create_default_context(cafile=guarded.server / "certificates" / "ca.pem")
    context.load_cert_chain(
        guarded.server / "certificates" / "server.pem", guarded.server / "certificates" / "server.key"
    )
    with httpx.Client(verify=context) as client, pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        client.post(f"https://{guarded.link.address}/v1/fleet/activate-node")


def test_who_sits_on_the_line_reads_nothing_and_a_changed_bit_ends_the_connection(guarded) -> None:
    """Everything between 'north' and the server goes through the attacker's hands, in both directions."""
    proxy, seen = Proxy(guarded.link.federation.port), bytearray()
    key = read_private_key(guarded.folder / "north" / "north.key")
    public = public_bytes(key.public_key())
    request = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
    log = guarded.server / "logs" / "superlink.log"

    def read(piece: bytes) -> bytes:
        seen.extend(piece)
        return piece

    def flip(piece: bytes) -> bytes:
        return piece[:-1] + bytes([piece[-1] ^ 1])

    try:
        proxy.change = read
        with caller(guarded, "north", "north", f"127.0.0.1:{proxy.port}") as client:
            node = Node(node_id=client.ActivateNode(request).node_id)
            assert len(seen) > 2000
            assert not any(word in seen for word in (public, b64encode(public), b"/v1/fleet", b"HTTP/1.1"))
            guarded.wait(lambda: guarded.online() == ["north"])
            before = len(log.read_text())
            proxy.change = flip
            with pytest.raises(httpx.TransportError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        assert guarded.online() == ["north"]
        proxy.change = bytes
        with caller(guarded, "north", "north", f"127.0.0.1:{proxy.port}") as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
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
    log = (guarded.server / "logs" / "superlink.log").read_text()
    assert "a connection was refused: TLS failed (UNSUPPORTED_PROTOCOL)" in log


def test_a_site_can_neither_control_runs_nor_register_nor_fetch_apps(guarded) -> None:
    folder = guarded.folder / "north"
    context = site_context(folder / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
    with httpx.Client(verify=context) as client:
        for path in ("control/start-run", "control/stop-run", "control/register-node", "runtime/acquire-task"):
            assert client.post(f"https://{guarded.link.address}/v1/{path}").status_code == 404
        assert client.get(f"https://{guarded.link.address}/docs").status_code == 404
        assert client.post(f"https://{guarded.link.address}/v1/fleet/pull-messages").status_code == 403  # unsigned
    with caller(guarded, "north", "north") as client:
        stranger = b"-----BEGIN PUBLIC KEY-----"
        assert refused(client.RegisterNode, RegisterNodeFleetRequest(public_key=stranger)) == 404
        assert refused(client.GetFab, GetFabRequest(hash_str="0" * 64, run_id=1)) == 404
        assert refused(client.GetRun, GetRunRequest(run_id=1)) == 404


def test_a_request_that_does_not_say_how_long_it_is_is_refused_before_it_is_read(guarded) -> None:
    """In chunks a body has no end; a length beside them says nothing."""
    key, folder = read_private_key(guarded.folder / "north" / "north.key"), guarded.folder / "north"
    context, host = site_context(folder / "ca.pem", folder / "north.pem", key), guarded.link.address
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/protobuf\r\n"
    head += f"{FLEET_HTTP_PUBLIC_KEY_HEADER}: {b64encode(public_bytes(key.public_key())).decode()}\r\n"
    chunked, endless = "Transfer-Encoding: chunked\r\n", f"Content-Length: {2**40}\r\n"
    for framing in (f"Content-Length: 10\r\n{chunked}", chunked, endless, ""):
        plain = socket.create_connection(("127.0.0.1", guarded.link.federation.port), timeout=10)
        with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            tls.sendall(f"{head}{framing}\r\n".encode())
            assert tls.recv(64).startswith(b"HTTP/1.1 413")


def test_a_site_cannot_speak_under_another_sites_key(guarded) -> None:
    """Not even with that key, as long as it has not the certificate; and a key alone opens nothing."""
    with caller(guarded, "north", "south") as client:
        key = public_bytes(read_private_key(guarded.folder / "south" / "south.key").public_key())
        assert refused(client.ActivateNode, ActivateNodeRequest(public_key=key, heartbeat_interval=30)) == 403
    with caller(guarded, "north", "north") as client:
        node = activated(guarded, client, "north")
        assert refused(client.PullMessages, PullMessagesRequest(node=Node(node_id=node.node_id ^ 1))) == 401
    assert "site 'north' speaks under another site's key" in (guarded.server / "logs" / "superlink.log").read_text()


@pytest.mark.full
def test_a_key_that_the_operator_removed_is_refused_although_its_certificate_is_valid(tmp_path) -> None:
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("fedavg"), {"rounds": 1}, sites=["north"])
    with live.link.start(), caller(live, "south", "south") as client:
        key = public_bytes(read_private_key(live.folder / "south" / "south.key").public_key())
        assert refused(client.ActivateNode, ActivateNodeRequest(public_key=key, heartbeat_interval=30)) == 403


@pytest.mark.full
def test_a_site_cannot_answer_for_another_nor_read_or_delete_its_messages(tmp_path) -> None:
    """'north' learns the ids of what 'south' was sent, as if it had read the server's memory."""
    live = Live(tmp_path / "project", SITES[:2])
    live.set(small("fedavg"), {"rounds": 1}, gather=20.0)
    with live.link.start(), caller(live, "north", "north") as north, caller(live, "south", "south") as south:
        mine, theirs = activated(live, north, "north"), activated(live, south, "south")
        live.link.submit()
        pulled = []
        live.wait(
            lambda: bool(pulled.extend(south.PullMessages(PullMessagesRequest(node=theirs)).messages_list) or pulled)
        )
        asked = message_from_proto(pulled[0])
        run, id = asked.metadata.run_id, asked.metadata.message_id
        forged = as_message(RecordDict(), asked)
        push = {"messages_list": [message_to_proto(forged)], "message_object_trees": [get_object_tree(forged)]}
        assert refused(north.PushMessages, PushMessagesRequest(node=mine, **push)) == 403
        asked.metadata.__dict__["_dst_node_id"] = mine.node_id  # an answer in its own name, to the other's message
        forged = as_message(RecordDict(), asked)
        push = {"messages_list": [message_to_proto(forged)], "message_object_trees": [get_object_tree(forged)]}
        assert refused(north.PushMessages, PushMessagesRequest(node=mine, **push)) == 403
        assert refused(north.PullObject, PullObjectRequest(node=mine, run_id=run, object_id=id)) == 403
        confirm = ConfirmMessageReceivedRequest(node=mine, run_id=run, message_object_id=id)
        assert refused(north.ConfirmMessageReceived, confirm) == 403
        kept = south.PullObject(PullObjectRequest(node=theirs, run_id=run, object_id=id))
        assert kept.object_available
    log = (live.server / "logs" / "superlink.log").read_text()
    assert "site 'north' was refused: an answer to a message that another site was sent" in log


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
            assert "SuperNode ID" not in child.log.read_text()
        live.assert_equal()
    finally:
        live.stop()
    assert not stolen.exists()
