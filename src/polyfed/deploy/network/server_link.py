"""The operator's hold on a server: start it, ask it for a run, and see how far that is."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from contextlib import suppress
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.keys import read_public_key, refuse_open
from polyfed.deploy.network.processes import LOOPBACK, ChildProcess, environment, locked
from polyfed.deploy.network.server import CURRENT, ENDED, LOCK, PRESENT, REQUESTED, RunEnd, RunRequest
from polyfed.deploy.server.handover import FINISHED
from polyfed.deploy.server.ledger import RoundLine
from polyfed.deploy.server.progress import read_progress
from polyfed.deploy.settings import FederationSettings, address_of, read_toml, server_settings

START = 300.0
"""Seconds that a server has to start: one that ends is noticed at once, and a machine that is busy takes its time."""
TAKE = 10.0
"""Seconds within which a server that is up takes a request."""


class ServerLink:
    """A server and its folder, with server.toml, certificates/ and keys/NAME.pub of each site; it writes there, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.path = self.folder / "server.toml"
        self.federation: FederationSettings = server_settings(read_toml(self.path), str(self.path))[0]
        for name in ("ca.pem", "server.pem", "server.key"):
            if not (self.folder / "certificates" / name).is_file():
                raise PolyfedError(
                    f"{self.folder / 'certificates' / name} does not exist; `polyfed deploy init "
                    f"{shlex.quote(str(self.folder.parent))}` makes it"
                )
        for name in ("server.key", "ca.key"):
            refuse_open(self.folder / "certificates" / name)
        for site in self.federation.sites:
            read_public_key(self.folder / "keys" / f"{site}.pub")

    @property
    def address(self) -> str:
        """Where this machine reaches the server."""
        host = self.federation.host
        return address_of({"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host), self.federation.port)

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / self.federation.run

    def start(self) -> ChildProcess:
        """Start the server's process, and wait until it listens."""
        log = self.folder / "logs" / "server.log"
        seen = log.stat().st_size if log.exists() else 0
        command = ["python", "-m", "polyfed.deploy.network.server", str(self.folder)]
        child = ChildProcess(command, environment(self.folder / "flower"), log)
        end = time.monotonic() + START
        while b"listening on" not in log.read_bytes()[seen:]:
            if not child.running or time.monotonic() > end:
                child.stop()
                raise PolyfedError(f"the server did not start; its log {log} ends with:\n{child.tail()}")
            time.sleep(0.1)
        return child

    @property
    def running(self) -> bool:
        """Whether a server is at work in this folder."""
        try:
            with locked(self.folder / LOCK):
                return False
        except PolyfedError:
            return True

    def submit(self, back: int | None = None) -> str:
        """Ask for the run of server.toml, or to go on with it, from round `back` if given; returns the request's id."""
        settings = read_toml(self.path)
        server_settings(settings, str(self.path))
        request: RunRequest = {"id": secrets.token_hex(8), "settings": json.dumps(settings), "back": back}
        write_text(self.folder / REQUESTED, json.dumps(request) + "\n")
        end = time.monotonic() + TAKE
        while (self.folder / REQUESTED).exists():
            if time.monotonic() > end:
                (self.folder / REQUESTED).unlink(missing_ok=True)
                what = "is at work on another run" if self.running else "is not up: `polyfed deploy server` starts it"
                raise PolyfedError(f"the server of {self.folder} {what}")
            time.sleep(0.05)
        return request["id"]

    def ended(self, request: str) -> str | None:
        """Why the run stopped, empty if it is complete; None while it is under way."""
        with suppress(FileNotFoundError, json.JSONDecodeError):
            end: RunEnd = json.loads((self.folder / ENDED).read_text())
            return end["why"] if end["id"] == request else None
        return None

    def present(self) -> list[str]:
        """The sites that are connected."""
        with suppress(FileNotFoundError, json.JSONDecodeError):
            listed: dict[str, bool] = json.loads((self.folder / PRESENT).read_text())
            return [site for site, there in listed.items() if there]
        return []

    def unfinished(self) -> bool:
        """Whether a run was under way when the server was stopped."""
        return (self.folder / CURRENT).exists()

    def without_result(self) -> list[str]:
        """The sites that were not there when the run ended: another `polyfed deploy run` hands them the result."""
        with suppress(FileNotFoundError, json.JSONDecodeError):
            told = json.loads((self.run_folder / FINISHED).read_text())
            return [site for site in self.federation.sites if site not in told]
        return []

    def progress(self) -> list[RoundLine]:
        """The rounds so far."""
        return read_progress(self.run_folder / "progress.jsonl")
