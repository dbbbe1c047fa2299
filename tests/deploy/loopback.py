"""A grid in one process, with every message as the bytes that travel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

import polyfed as pf
from polyfed.deploy.network.mailboxes import read_answer
from polyfed.deploy.new_site import read_published
from polyfed.deploy.protocol.envelope import Envelope, error_envelope
from polyfed.deploy.protocol.messages import Answer, SiteGrid
from polyfed.deploy.server.going_back import go_back
from polyfed.deploy.server.serve import serve
from polyfed.deploy.site.policy import RunPolicy
from polyfed.deploy.site.site import Site, SitePolicy
from polyfed.engine.simulation import Simulation
from tests.deploy.expected import assert_equal

Change = Callable[[str, int, Answer], Answer | None]
"""What becomes of an answer on its way: (site, round, answer) -> the answer that arrives, or None if none does."""
PROBLEM = {"model": "linear", "loss": "softmax", "l2": 0.01}

ANYTHING = RunPolicy(smallest_batch=1, fewest_sites=1, changes="allow")
"""The policy of a site that is asked for whatever a test needs."""


class Loopback(SiteGrid):
    """Sites behind one grid; `absent` ones are not connected, `change` meddles with answers."""

    def __init__(
        self,
        federation: pf.Federation | dict[str, Any],
        folder: Path,
        measure: bool = False,
        policy: RunPolicy = ANYTHING,
        **allow: bool,
    ) -> None:
        rows = federation if isinstance(federation, dict) else _single(federation)
        self.folder, self.names = folder, tuple(rows)
        self.sites = {
            name: Site(name, own, folder / name, SitePolicy(**allow), measure, policy) for name, own in rows.items()
        }
        self.started = dict.fromkeys(self.sites, 1)
        self.change: Change | None = None
        self.absent: set[str] = set()
        self.replies: dict[str, Answer] = {}
        self.uploads: list[tuple[str, int]] = []
        self._count = 0

    def restart(self, name: str) -> None:
        """The site's process ends, and another takes its place: what it had in memory is gone."""
        old = self.sites[name]
        self.sites[name] = Site(name, old.federation, old.folder, old.allow, old.measure, old.policy)
        self.started[name] += 1

    def connected(self) -> dict[str, str]:
        return {name: str(started) for name, started in self.started.items() if name not in self.absent}

    def send(self, site: str, kind: str, content: RecordDict) -> str:
        self._count += 1
        given = str(self._count)
        received = Envelope.read(_bytes(Envelope(kind, content)))
        reply = read_answer(given, _bytes(self._answer(site, received)))
        number = received.content.config_records["about"].get("round", -1)
        assert isinstance(number, int)
        if self.change is not None:
            reply = self.change(site, number, reply)
        if reply is not None:
            data = _bytes(error_envelope(reply.error) if reply.error else Envelope(kind, reply.content))
            self.replies[given] = read_answer(given, data)
            if kind == "train":
                self.uploads.append((site, len(data)))
        return given

    def answers(self, messages: Iterable[str]) -> list[Answer]:
        return [self.replies.pop(given) for given in list(messages) if given in self.replies]

    def forget(self, messages: Iterable[str]) -> None:
        for given in messages:
            self.replies.pop(given, None)

    def _answer(self, name: str, asked: Envelope) -> Envelope:
        try:
            return Envelope(asked.kind, self.sites[name].answer(asked.kind, asked.content))
        except Exception as error:
            return error_envelope(repr(error))

    def serve(
        self,
        method: dict[str, Any],
        run: dict[str, Any] | None = None,
        privacy: Any = None,
        problem: dict[str, Any] | None = None,
        back: int | None = None,
        name: str = "study",
        aggregate: Any = None,
        data: dict[str, Any] | None = None,
        deploy: dict[str, Any] | None = None,
        **rules: Any,
    ) -> Any:
        """One run of the ServerApp to its end; what it published."""
        federation = {"sites": list(self.names), "run": name, "poll": 0.01, "deadline": 0.2, **rules}
        settings = {
            "federation": federation,
            "problem": {**PROBLEM, **(problem or {})},
            "algorithm": method,
            "run": {"rounds": 5, "dtype": "float64", **(run or {})},
        }
        if data is not None:
            settings["data"] = data
        if deploy is not None:
            settings["deploy"] = deploy
        if privacy is not None:
            settings["privacy"] = privacy
        if aggregate is not None:
            settings["aggregate"] = aggregate
        if back is not None:
            go_back(self.folder / "server" / "runs" / name, back)
        serve(self, json.dumps(settings), self.folder / "server")
        return read_published(self.folder / "server" / "runs" / name).server

    @property
    def run_folder(self) -> Path:
        return self.folder / "server" / "runs" / "study"

    @property
    def published(self) -> Any:
        return read_published(self.run_folder).server

    def assert_equal(self, expected: Simulation) -> None:
        """The published server, and every site's state and model, are those of the simulator."""
        assert_equal(self.folder, "study", self.published, expected)


def _single(federation: pf.Federation) -> dict[str, Any]:
    """Each client's rows by themselves."""
    return {name: federation.select([place]) for place, name in enumerate(federation.clients)}


def _bytes(envelope: Envelope) -> bytes:
    return b"".join(envelope.parts())
