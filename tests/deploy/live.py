"""Federations of real processes on loopback: a server, and three sites with made-up rows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

import polyfed as pf
from polyfed.data import Split
from polyfed.deploy.flower.processes import Child, environment, free_port
from polyfed.deploy.flower.server_link import Link
from polyfed.deploy.project import make_project
from polyfed.deploy.settings import own_rows, read_toml, site_settings
from polyfed.engine.privacy.mechanism import privacy_settings
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import algorithm_from

SITES = ["north", "south", "west"]
QUICK = "--xla_backend_optimization_level=0"
"""Programs of a second's work are compiled quickly rather than well."""
PATIENCE = 200.0
"""Seconds after which a run is given up: it bounds a failing test, and decides nothing."""


class Live:
    """A project's folder, and the processes that were started for it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, folder / "server"
        make_project(folder, SITES, "127.0.0.1", free_port(), example=True)
        for site in SITES:
            path = folder / site / "site.toml"
            path.write_text(path.read_text().replace("[site]", "[site]\nmeasure = false"))
        self.children: dict[str, Child] = {}

    def set(
        self, method: dict[str, Any], settings: dict[str, Any], privacy: dict[str, Any] | None = None, **federation: Any
    ) -> None:
        """Change server.toml."""
        sections = read_toml(self.server / "server.toml")
        sections |= {"algorithm": method, "run": {"dtype": "float64", **settings}}
        sections.pop("privacy", None)
        if privacy is not None:
            sections["privacy"] = privacy
        sections["federation"] |= federation
        (self.server / "server.toml").write_text(tomlkit.dumps(sections))

    def start(self, name: str) -> Child:
        """`polyfed deploy server`, or `polyfed deploy site`, as a process of its own."""
        what = "server" if name == "server" else "site"
        command = ["polyfed", "deploy", what, str(self.folder / name)]
        env = environment(self.folder / name / "flower", XLA_FLAGS=QUICK)
        self.children[name] = Child(command, env, self.folder / name / "logs" / "polyfed.log")
        return self.children[name]

    @property
    def link(self) -> Link:
        return Link(self.server)

    def rounds(self) -> int:
        return len(self.link.progress())

    def wait(self, until: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not until():
            if time.monotonic() > end:
                logs = {name: child.tail(20) for name, child in self.children.items()}
                raise TimeoutError(f"nothing came of it within {PATIENCE:g} seconds: {logs}")
            time.sleep(0.2)

    def up(self) -> None:
        """The server and all sites, until the server is ready for runs."""
        self.start("server")
        for site in SITES:
            self.start(site)
        self.wait(lambda: "waiting for" in self.children["server"].log.read_text())

    def online(self) -> list[Any]:
        return [node for node in self.link.nodes() if node["status"] == "online"]

    def finished(self) -> bool:
        place = self.link.run_folder
        return (place / "finished.json").exists() and not self.link.unfinished()

    def stop(self) -> None:
        for child in self.children.values():
            child.stop()

    def simulated(self) -> Simulation:
        """The same run in the simulator, over all sites' rows."""
        sections = read_toml(self.server / "server.toml")
        parts = [own_rows(s.name, s.data, s.columns) for s in (site_settings(self.folder / site) for site in SITES)]

        def joined(name: str) -> Split:
            splits = [part.split(name) for part in parts]
            offsets = np.cumsum([0, *(len(split.y) for split in splits)], dtype=np.int64)
            return Split(np.concatenate([s.x for s in splits]), np.concatenate([s.y for s in splits]), offsets)

        whole = dataclasses.replace(
            parts[0], clients=tuple(SITES), train=joined("train"), validation=joined("validation"), test=joined("test")
        )
        options = dict(sections["run"])
        problem = pf.Problem(whole, pf.models.linear(), "logistic", l2=sections["problem"]["l2"])
        privacy = privacy_settings(sections.get("privacy"), "server.toml")
        found = Simulation(problem, algorithm_from(sections["algorithm"]), dtype=options["dtype"], privacy=privacy)
        found.prepare()
        found.advance(options["rounds"])
        return found
