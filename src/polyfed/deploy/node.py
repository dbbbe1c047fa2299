"""A site's side of Flower: its own process, and a SuperNode that brings it the server's messages."""

from __future__ import annotations

from pathlib import Path

from polyfed.deploy.processes import LOOPBACK, Child, environment, free_port
from polyfed.deploy.settings import SiteSettings
from polyfed.deploy.site_process import SiteProcess


class Node:
    """A running site; `child` is its SuperNode."""

    def __init__(self, settings: SiteSettings) -> None:
        self.process = SiteProcess(settings.site())
        home: Path = settings.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        command = ["flower-supernode", "--root-certificates", str(settings.certificate)]
        command += ["--superlink", settings.server, "--auth-supernode-private-key", str(settings.key)]
        command += ["--host", LOOPBACK, "--port", str(free_port())]
        self.process.start()
        env = environment(home, **self.process.environment)
        self.child = Child(command, env, settings.folder / "logs" / "supernode.log")

    def stop(self) -> None:
        self.child.stop()
        self.process.close()
