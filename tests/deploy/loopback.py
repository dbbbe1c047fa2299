"""A grid in one process: every message becomes the bytes that Flower sends, and is read back from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polyfed as pf
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from polyfed.deploy.apps import client_app
from polyfed.deploy.coordinator import Conduct, Coordinator
from polyfed.deploy.site import Allowed, Site
from polyfed.deploy.terms import Plan

Change = Callable[[str, int, Message], Message | None]
"""What becomes of an answer on its way: (site, round, answer) -> the answer that arrives, or None if none does."""


class Loopback(Grid):
    """Sites behind one grid; `absent` ones are not connected, `change` meddles with answers, `sizes` are in bytes."""

    def __init__(self, sites: dict[str, Site], change: Change | None = None) -> None:
        self.apps = {name: client_app(site) for name, site in sites.items()}
        self.nodes = {name: 100 + place for place, name in enumerate(sites)}
        self.change, self.absent = change, set()
        self.replies: dict[str, Message] = {}
        self.uploads: list[tuple[str, int]] = []
        self._count = 0
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as in a process that Flower starts

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [node.node_id for node in self.get_nodes()]

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=id, name=name) for name, id in self.nodes.items() if name not in self.absent]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        pushed = []
        for message in messages:
            self._count += 1
            name = next(name for name, node in self.nodes.items() if node == message.metadata.dst_node_id)
            received, _ = self._travel(message)
            received.metadata.__dict__["_message_id"] = str(self._count)
            pushed.append(str(self._count))
            reply = self._answer(self.apps[name], received)
            number = received.content.config_records["about"].get("round", -1)
            if self.change is not None:
                reply = self.change(name, int(number), reply)  # pyright: ignore[reportArgumentType]
            if reply is not None:
                arrived, size = self._travel(reply)
                arrived.metadata.__dict__["_reply_to_message_id"] = str(self._count)
                self.replies[str(self._count)] = arrived
                if received.metadata.message_type == "train":
                    self.uploads.append((name, size))
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(given) for given in list(message_ids) if given in self.replies]

    def _answer(self, app: ClientApp, message: Message) -> Message:
        context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
        try:
            return app(message, context)
        except Exception as error:
            return Message(Error(code=2, reason=repr(error)), reply_to=message)

    def _travel(self, message: Message) -> tuple[Message, int]:
        """The message as it arrives, and the bytes of its parts."""
        parts = {id: part.deflate() for id, part in get_all_nested_objects(message).items()}
        found: Any = inflate_object_from_contents(message.object_id, dict(parts))
        return found, sum(map(len, parts.values()))


PROBLEM = {"model": "linear", "loss": "softmax", "l2": 0.01}


def make_sites(federation: pf.Federation, folder: Path, measure: bool = False, **allow: bool) -> dict[str, Site]:
    """A site for each client of a federation."""
    return {
        name: Site(name, federation.select([place]), folder / name, Allowed(**allow), measure)
        for place, name in enumerate(federation.clients)
    }


def make_plan(federation: pf.Federation, method: Any, **options: Any) -> Plan:
    given = {"rounds": 5, "dtype": "float64", "problem": PROBLEM, **options}
    return Plan("study", federation.clients, method=method, **given)


def deployed(plan: Plan, grid: Grid, folder: Path, **conduct: Any) -> Coordinator:
    """A run through the grid, to its end."""
    found = Coordinator(plan, grid, folder, Conduct(**{"poll": 0.0, "deadline": 5.0, **conduct}))
    found.run()
    return found
