"""A site's side of Flower: its own process, and a SuperNode that brings it the server's messages."""

from __future__ import annotations

import time
from collections.abc import Callable

from polyfed.deploy.flower.processes import LOOPBACK, ChildProcess, environment, free_port
from polyfed.deploy.flower.site_process import SiteProcess
from polyfed.deploy.settings import SiteSettings

RESTART_AFTER = 3.0
"""Seconds after which a SuperNode that ended is started again."""


class SuperNode:
    """A running site: its own process, and Flower's SuperNode as `child`."""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings, self.process = settings, SiteProcess(settings.site())
        self.process.start()
        self.child = self._start()

    def _start(self) -> ChildProcess:
        settings = self.settings
        home = settings.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        command = ["flower-supernode", "--root-certificates", str(settings.certificate)]
        command += ["--superlink", settings.server, "--auth-supernode-private-key", str(settings.key)]
        command += ["--host", LOOPBACK, "--port", str(free_port())]
        env = environment(home, **self.process.environment)
        return ChildProcess(command, env, settings.folder / "logs" / "supernode.log")

    def restart_if_ended(self, say: Callable[[str], None]) -> None:
        """Start Flower's SuperNode again if it ended: a server that does not know this site's key yet turns it away."""
        if self.child.running:
            return
        why = next((line for line in reversed(self.child.tail(12).splitlines()) if "SuperNode" in line), "it ended")
        say(f"site '{self.settings.name}': {why} Trying again; see {self.child.log}")
        self.child.stop()
        time.sleep(RESTART_AFTER)
        self.child = self._start()

    def stop(self) -> None:
        self.child.stop()
        self.process.close()
