"""A grid in one process, with every message as the bytes that Flower sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

import polyfed as pf
from polyfed.deploy.new_site import read_published
from polyfed.deploy.protocol.messages import SiteGrid
from polyfed.deploy.server.going_back import go_back
from polyfed.deploy.server.serve import serve
from polyfed.deploy.site.policy import RunPolicy
from polyfed.deploy.site.site import Site, SitePolicy
from polyfed.engine.simulation import Simulation
from tests.deploy.expected import assert_equal

Change = Callable[[str, int, Message], Message | None]
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
        self.nodes = {name: 100 + place for place, name in enumerate(self.sites)}
        self.started = dict.fromkeys(self.sites, 1)
        self.change: Change | None = None
        self.absent: set[str] = set()
        self.replies: dict[str, Message] = {}
        self.uploads: list[tuple[str, int]] = []
        self._count = 0
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as in a process that Flower starts

    def restart(self, name: str) -> None:
        """The site's process ends, and another takes its place: what it had in memory is gone."""
        old = self.sites[name]
        self.sites[name] = Site(name, old.federation, old.folder, old.allow, old.measure, old.policy)
        self.started[name] += 1

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *_: Any, **__: Any) -> Message:
        pytest.fail("the server is to make its messages itself")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        pytest.fail("the server is to push and pull: to wait for all would let one site hold up a round")

    def get_node_ids(self) -> list[int]:
        return [node.node_id for node in self.get_nodes()]

    def get_nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(node_id=id, name=name, last_activated_at=str(self.started.get(name)))
            for name, id in self.nodes.items()
            if name not in self.absent
        ]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        pushed = []
        for message in messages:
            self._count += 1
            name = next(name for name, node in self.nodes.items() if node == message.metadata.dst_node_id)
            received, _ = _travel(message)
            received.metadata.__dict__["_message_id"] = str(self._count)
            pushed.append(str(self._count))
            reply = self._answer(name, received)
            number = received.content.config_records["about"].get("round", -1)
            assert isinstance(number, int)
            if self.change is not None:  # it gets a copy: what the site itself keeps does not change
                reply = self.change(name, number, _travel(reply)[0])
            if reply is not None:
                arrived, size = _travel(reply)
                arrived.metadata.__dict__["_reply_to_message_id"] = str(self._count)
                self.replies[str(self._count)] = arrived
                if received.metadata.message_type == "train":
                    self.uploads.append((name, size))
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(given) for given in list(message_ids) if given in self.replies]

    def forget(self, message_ids: Iterable[str]) -> None:
        for given in message_ids:
            self.replies.pop(given, None)

    def _answer(self, name: str, message: Message) -> Message:
        try:
            return Message(self.sites[name].answer(message.metadata.message_type, message.content), reply_to=message)
        except Exception as error:
            return Message(Error(code=2, reason=repr(error)), reply_to=message)

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


def _travel(message: Message) -> tuple[Message, int]:
    """The message as it arrives, and the bytes of its parts."""
    parts = {id: part.deflate() for id, part in get_all_nested_objects(message).items()}
    arrived: Any = inflate_object_from_contents(message.object_id, dict(parts))
    return arrived, sum(map(len, parts.values()))
