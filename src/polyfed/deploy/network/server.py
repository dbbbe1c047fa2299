"""The server's process: the sites' mailboxes behind the gate, and the runs that the operator asks for.

`python -m polyfed.deploy.network.server FOLDER`. Runs are asked for by a file in the server's folder, so that
whoever may write there is the operator, and there is no other way in.
"""

from __future__ import annotations

import json
import logging
import ssl
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import uvicorn
from safetensors import SafetensorError

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.keys import public_bytes, read_public_key, warn_daily
from polyfed.deploy.logs import log_to_output
from polyfed.deploy.network.gate import Gate, PeerProtocol
from polyfed.deploy.network.mailboxes import Mailboxes
from polyfed.deploy.network.processes import locked
from polyfed.deploy.protocol.plain_values import printable
from polyfed.deploy.server.going_back import go_back
from polyfed.deploy.server.serve import serve
from polyfed.deploy.settings import FederationSettings, read_toml, server_settings

log = logging.getLogger("polyfed")
NOT_TLS = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's words for a connection that does not begin with TLS."""
LOCK, REQUESTED, ENDED, PRESENT = "server.lock", "requested.json", "ended.json", "present.json"
"""In the server's folder: held while it runs; the run that is asked for; how the last one ended; who is connected."""
CURRENT = "current.json"
"""The request of a run that has not ended: a server that is started again goes on with it."""
POLL = 0.1
FULL = 2.0
"""Seconds after which a file that could not be written is tried again."""


class RunRequest(TypedDict):
    """What `requested.json` holds."""

    id: str
    settings: str
    back: int | None
    """the round after which the run is to go on, where it is to go back first"""


class RunEnd(TypedDict):
    """What `ended.json` holds: the request, and why the run stopped; empty where it is complete."""

    id: str
    why: str


class LoggedConnection(ssl.SSLObject):
    """One side of a TLS connection, which logs a handshake that fails."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.server_side:
                log.warning("a connection was refused: %s", refusal_reason(error))
            raise


def refusal_reason(error: ssl.SSLError) -> str:
    """What was wrong with a connection."""
    reason = str(error.reason or error)
    if reason in NOT_TLS:
        return f"it does not speak TLS ({reason})"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no certificate of a site"
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return "its certificate is not of this federation's authority"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"it does not trust this server's certificate ({reason})"
    return f"TLS failed ({reason})"


def known_sites(folder: Path, sites: tuple[str, ...]) -> dict[bytes, str]:
    """The sites by the keys that the operator keeps in keys/; there is no other way to be known."""
    keys: dict[bytes, str] = {}
    for site in sites:
        key = public_bytes(read_public_key(folder / "keys" / f"{site}.pub"))
        if key in keys:
            raise PolyfedError(f"{folder / 'keys'}: sites '{keys[key]}' and '{site}' have the same key")
        keys[key] = site
    return keys


def listen(folder: Path, federation: FederationSettings, gate: Gate) -> None:
    """Serve sites in a thread, and return when the port is open."""
    certificates = folder / "certificates"
    config = uvicorn.Config(
        gate,
        host=federation.host,
        port=federation.port,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        timeout_keep_alive=30,  # longer than sites keep an idle line, so that none is closed while it is used
        log_level="warning",
        ssl_certfile=str(certificates / "server.pem"),
        ssl_keyfile=str(certificates / "server.key"),
        ssl_ca_certs=str(certificates / "ca.pem"),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise PolyfedError(f"the server cannot listen on {federation.host}:{federation.port}")
        time.sleep(0.05)


class Office:
    """Takes the operator's requests, one after another, and says who is connected."""

    def __init__(self, folder: Path, mail: Mailboxes) -> None:
        self.folder, self.mail = folder, mail
        self._present: dict[str, bool] = {}

    def watch(self) -> None:
        """Keep `present.json` up to date."""
        while True:
            present = self.mail.presence()
            with suppress(OSError):  # where the disk is full, it is tried again
                if present != self._present:
                    write_text(self.folder / PRESENT, json.dumps(present, indent=1) + "\n")
                    self._present = present
            time.sleep(POLL)

    def work(self) -> None:
        """Carry out what is asked for, for ever; first the run that was under way when the server was stopped."""
        current = self.folder / CURRENT
        while True:
            request = _read_request(current) or self._next()
            if request is not None:
                end: RunEnd = {"id": request["id"], "why": self._run(request)}
                _write_surely(self.folder / ENDED, json.dumps(end, indent=1) + "\n")
                current.unlink(missing_ok=True)
            time.sleep(POLL)

    def _next(self) -> RunRequest | None:
        """The run that is asked for. A server that is killed after this goes on with it."""
        requested, current = self.folder / REQUESTED, self.folder / CURRENT
        request = _read_request(requested)
        if request is None:
            return None
        _write_surely(current, json.dumps(request) + "\n")
        try:
            requested.unlink()
        except FileNotFoundError:  # whoever asked gave up meanwhile
            current.unlink()
            return None
        return request

    def _run(self, request: RunRequest) -> str:
        try:
            if request["back"] is not None:
                name = server_settings(json.loads(request["settings"]), "server.toml")[0].run
                go_back(self.folder / "runs" / name, request["back"])
                _write_surely(self.folder / CURRENT, json.dumps({**request, "back": None}) + "\n")
            serve(self.mail, request["settings"], self.folder)
        except PolyfedError as error:
            return printable(str(error))
        except (OSError, SafetensorError) as error:  # a full disk
            return f"the server cannot write: {error}; `polyfed deploy run` goes on from the last round that was kept"
        except Exception as error:  # the server outlives a run that fails
            log.exception("the run failed")
            return printable(f"the run failed: {type(error).__name__}: {error}")
        finally:
            self.mail.clear()
        return ""


def _read_request(path: Path) -> RunRequest | None:
    """The request in a file; None where there is none. One that cannot be read is logged and removed."""
    try:
        request = json.loads(path.read_text())
        return {"id": request["id"], "settings": request["settings"], "back": request["back"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        log.error("%s is no request and is dropped; `polyfed deploy run` asks for a run", path)
        path.unlink(missing_ok=True)
        return None


def _write_surely(path: Path, text: str) -> None:
    """Write a file without which others would wait for ever; while the disk is full, it is tried again."""
    told = False
    while True:
        try:
            return write_text(path, text)
        except OSError as error:
            if not told:
                log.error("%s cannot be written and is tried again: %s", path, error)
            told = True
            time.sleep(FULL)


def main(folder: Path) -> None:
    log_to_output(folder / "logs" / "server.log")
    ssl.SSLContext.sslobject_class = LoggedConnection
    try:
        with locked(folder / LOCK, wait=5.0):
            path = folder / "server.toml"
            federation, _, rules = server_settings(read_toml(path), str(path))
            mail = Mailboxes(federation.sites)
            listen(folder, federation, Gate(known_sites(folder, federation.sites), int(rules.largest), mail))
            office = Office(folder, mail)
            threading.Thread(target=office.watch, daemon=True).start()
            names = ("ca", "server", *federation.sites)
            warn_daily([folder / "certificates" / f"{name}.pem" for name in names], log.warning)
            log.info("listening on %s:%d", federation.host, federation.port)
            office.work()
    except PolyfedError as error:
        log.error("%s", error)
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
