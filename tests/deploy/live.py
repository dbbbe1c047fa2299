"""Federations of real processes on loopback: a server, and sites with made-up rows."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

import polyfed as pf
from polyfed.data import Split
from polyfed.deploy.network.processes import ChildProcess, environment, free_port, stop_together
from polyfed.deploy.network.server_link import ServerLink
from polyfed.deploy.new_site import read_published
from polyfed.deploy.project import make_project
from polyfed.deploy.settings import read_toml, site_settings
from polyfed.deploy.site.table import SiteTable
from polyfed.engine.privacy.mechanism import privacy_settings
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import algorithm_from
from tests.compilation import QUICK
from tests.deploy.expected import assert_equal, in_cohorts

SITES = ["north", "south", "west"]
PATIENCE = 200.0
"""Seconds after which a run is given up: it bounds a failing test, and decides nothing."""


class Live:
    """A project's folder, and the processes that were started for it."""

    def __init__(self, folder: Path, sites: Sequence[str] = SITES, changes: str = "allow") -> None:
        self.folder, self.server, self.sites = folder, folder / "server", sites
        make_project(folder, sites, "127.0.0.1", free_port(), example=True)
        for site in sites:
            path = folder / site / "site.toml"
            text = path.read_text().replace("[site]", "[site]\nmeasure = false")
            text = text.replace("smallest_batch = 8", "smallest_batch = 1").replace(
                'changes = "ask"', f'changes = "{changes}"'
            )
            path.write_text(re.sub("fewest_sites = .", "fewest_sites = 1", text))
        self.children: dict[str, ChildProcess] = {}

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

    def start(self, name: str) -> ChildProcess:
        """`polyfed deploy server`, or `polyfed deploy site`, as a process of its own."""
        what = "server" if name == "server" else "site"
        command = ["polyfed", "deploy", what, str(self.folder / name)]
        env = environment(self.folder / name / "flower", XLA_FLAGS=QUICK)
        self.children[name] = ChildProcess(command, env, self.folder / name / "logs" / "polyfed.log")
        return self.children[name]

    @property
    def link(self) -> ServerLink:
        return ServerLink(self.server)

    def rounds(self) -> int:
        return len(self.link.progress())

    def wait(self, until: Callable[[], bool], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not until():
            if time.monotonic() > end:
                logs = {name: child.tail(20) for name, child in self.children.items()}
                raise TimeoutError(f"still waiting after {patience:g} seconds: {logs}")
            time.sleep(0.2)

    def up(self) -> None:
        """The server and all sites, until the server is ready for runs."""
        self.start("server")
        for site in self.sites:
            self.start(site)
        self.wait(lambda: "waiting for" in self.children["server"].log.read_text())

    def online(self) -> list[str]:
        return self.link.present()

    def finished(self) -> bool:
        place = self.link.run_folder
        return (place / "finished.json").exists() and not self.link.unfinished()

    def stop(self) -> None:
        server = self.children.pop("server", None)
        stop_together(child.stop for child in self.children.values())
        if server is not None:
            server.stop()

    def simulated(self, cohorts: Sequence[Sequence[str]] | None = None, **more: Any) -> Simulation:
        """The same run in the simulator, over all sites' rows; `cohorts`: the sites of each round, if not all."""
        sections = read_toml(self.server / "server.toml")
        tables = [s.site().federation for s in (site_settings(self.folder / site) for site in self.sites)]
        parts = [table.prepared(None) if isinstance(table, SiteTable) else table for table in tables]

        def joined(name: str) -> Split:
            splits = [part.split(name) for part in parts]
            offsets = np.cumsum([0, *(len(split.y) for split in splits)], dtype=np.int64)
            return Split(np.concatenate([s.x for s in splits]), np.concatenate([s.y for s in splits]), offsets)

        whole = dataclasses.replace(
            parts[0],
            clients=tuple(self.sites),
            train=joined("train"),
            validation=joined("validation"),
            test=joined("test"),
        )
        options = dict(sections["run"])
        problem = pf.Problem(whole, pf.models.linear(), "logistic", l2=sections["problem"]["l2"])
        privacy = privacy_settings(sections.get("privacy"), "server.toml")
        with nullcontext() if cohorts is None else in_cohorts(self.sites, cohorts):
            simulation = Simulation(
                problem, algorithm_from(sections["algorithm"]), dtype=options["dtype"], privacy=privacy, **more
            )
            simulation.prepare()
            simulation.advance(options["rounds"])
        return simulation

    def assert_equal(self, cohorts: Sequence[Sequence[str]] | None = None) -> None:
        """The published server, and every site's state and model, are those of the simulator."""
        link = self.link
        assert_equal(self.folder, link.federation.run, read_published(link.run_folder).server, self.simulated(cohorts))
