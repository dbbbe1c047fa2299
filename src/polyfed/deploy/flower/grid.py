"""Flower's grid inside the server's process: messages to sites, and their answers, through Flower's state alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID, ErrorCode, SubStatus
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from polyfed.deploy.flower.gate import Gatekeeper
from polyfed.deploy.protocol.messages import SiteGrid
from polyfed.deploy.protocol.plain_values import printable

log = logging.getLogger("polyfed")


class FleetGrid(SiteGrid):
    """A run's grid. Nothing that a site sends can stop it or hold it up: an answer is taken when all of it is there."""

    def __init__(self, state: LinkState, keeper: Gatekeeper, run_id: int) -> None:
        self.state, self.keeper, self._run_id = state, keeper, run_id
        self._arriving: dict[str, Message] = {}
        """answers whose parts may still be under way, by the message that they answer"""

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        return self.state.get_run_info(run_ids=[self._run_id])[0]

    def create_message(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("messages are made as flwr.app.Message")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> NoReturn:
        raise NotImplementedError("one site would hold up all others: push, and pull what came")

    def get_node_ids(self) -> Iterable[int]:
        return self.state.get_nodes(self._run_id)

    def get_nodes(self) -> list[NodeInfo]:
        ids = list(self.get_node_ids())
        return list(self.state.get_node_info(node_ids=ids)) if ids else []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Hand messages over; a node that has left meanwhile gets none."""
        ids = []
        for message in messages:
            with no_object_id_recompute():
                message.metadata.__dict__["_message_id"] = message.object_id
                tree, objects = get_object_tree(message), get_all_nested_objects(message)
                session = self.state.start_session(self._run_id)
                head = remove_content_from_message(message)
                stored, missing = self.state.store_message_and_object_tree(head, tree, session)
                for part in missing:
                    self.state.store_object(self._run_id, session, part, objects[part].deflate())
            if stored:
                ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers that are complete, each under the message that it was given to, whatever it says itself."""
        came = []
        for asked in message_ids:
            if asked not in self._arriving:
                for answer in self.state.get_message_res({asked}, self._run_id):
                    self._arriving[asked] = answer
            answer = self._arriving.get(asked)
            if answer is None:
                continue
            taken = self._complete(answer)
            if taken is not None:
                self.forget([asked])
                came.append(taken)
        return came

    def forget(self, message_ids: Iterable[str]) -> None:
        """Drop messages and what came in answer to them, whether the site fetched them, or sent all of it, or not."""
        for asked in message_ids:
            answers = [self._arriving.pop(asked, None), *self.state.get_message_res({asked}, self._run_id)]
            self.state.delete_messages({asked})
            for part in {asked, *(answer.metadata.message_id for answer in answers if answer is not None)}:
                self.state.object_store.delete(part)

    def _complete(self, answer: Message) -> Message | None:
        """An answer with its content; None while a part is missing."""
        head, store = answer.metadata, self.state.object_store
        if answer.has_error():
            return answer
        parts = self.keeper.parts_of(head.src_node_id, head.message_id)
        contents = {part: store.get(part) for part in parts}
        if not contents or not all(contents.values()):
            return None
        try:
            inflated: Any = inflate_object_from_contents(head.message_id, _bytes(contents))
            if not isinstance(inflated, Message):
                raise TypeError(f"it is a {type(inflated).__name__}")
            error = inflated.error if inflated.has_error() else None
            return make_message(head, None if error else inflated.content, error)
        except Exception as error:  # what a site sends must not end the run, whatever it is
            why = f"its answer cannot be read: {type(error).__name__}: {printable(str(error), 200)}"
            log.warning("node %d: %s", head.src_node_id, why)
            return make_message(head, error=Error(ErrorCode.UNKNOWN, why))


@contextmanager
def running_grid(state: LinkState, keeper: Gatekeeper) -> Iterator[FleetGrid]:
    """The grid of a new run of Flower's, which ends with it. It has no app: sites run what is installed there."""
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    task = state.get_run_info(run_ids=[run])[0].primary_task_id
    assert task is not None
    state.claim_task(task)
    state.activate_task(task)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SUPERLINK_NODE_ID, task
    alive = HeartbeatSender(lambda: state.acknowledge_task_heartbeat(task))
    alive.start()
    try:
        yield FleetGrid(state, keeper, run)
    finally:
        alive.stop()
        state.finish_task(task, SubStatus.COMPLETED, "")
        state.cleanup_run(run)


def as_message(content: RecordDict | Error, asked: Message) -> Message:
    """An answer as it travels: its id is that of its content."""
    answer = Message(content, reply_to=asked)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    return answer


def _bytes(contents: Mapping[str, bytes | None]) -> dict[str, bytes]:
    return {part: content for part, content in contents.items() if content is not None}
