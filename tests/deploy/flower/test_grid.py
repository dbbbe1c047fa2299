"""The server's store of messages: one answer each, and nothing is kept that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from polyfed.deploy.flower.gate import Gatekeeper
from polyfed.deploy.flower.grid import FleetGrid, as_message, running_grid
from polyfed.deploy.protocol import wire


@pytest.fixture
def grid() -> Iterator[FleetGrid]:
    store = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    state = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), store).state()
    state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, b"key", 0, name="north")
    state.activate_node(state.get_node_id_by_public_key(b"key") or 0, 30)
    with running_grid(state, Gatekeeper({}, 10**6)) as made:
        yield made


def content(value: float = 0.0) -> RecordDict:
    record = RecordDict({"about": ConfigRecord({"round": 1})})
    record["upload"] = wire.as_record({"w": np.full(100, value)})
    return record


def sent(grid: FleetGrid) -> tuple[str, Message, int]:
    """A message to the site, as it arrives there."""
    [node] = list(grid.get_node_ids())
    [id] = grid.push_messages([Message(content(), node, "train", ttl=60.0)])
    [arrived] = grid.state.get_message_ins(node_id=node, limit=1)
    head = PullMessagesResponse(
        messages_list=[message_to_proto(arrived)], message_object_trees=[grid.state.object_store.get_object_tree(id)]
    )
    grid.keeper.keep(PushMessagesRequest(node=Node(node_id=node)), head)
    return id, arrived, node


def push(grid: FleetGrid, asked: Message, node: int, value: float, parts: int | None = None) -> None:
    """The site's answer, through the gate into the store: all of its parts, or the first few."""
    answer = as_message(content(value), asked)
    tree, objects = get_object_tree(answer), get_all_nested_objects(answer)
    head = message_to_proto(answer)
    request = PushMessagesRequest(node=Node(node_id=node), messages_list=[head], message_object_trees=[tree])
    grid.keeper.check(request, grid.state)
    session = grid.state.start_session(asked.metadata.run_id)
    _, missing = grid.state.store_message_and_object_tree(answer, tree, session)
    grid.keeper.keep(request, PushMessagesResponse(session_id=session))
    for part in list(missing)[:parts]:
        grid.state.store_object(asked.metadata.run_id, session, part, objects[part].deflate())


def test_an_answer_is_taken_and_nothing_of_it_stays_even_if_the_site_never_confirmed(grid) -> None:
    id, asked, node = sent(grid)
    push(grid, asked, node, 3.0)
    [came] = grid.pull_messages([id])
    np.testing.assert_array_equal(wire.as_arrays(came.content.array_records["upload"])["w"], np.full(100, 3.0))
    assert len(grid.state.object_store) == 0


@pytest.mark.parametrize("parts", [None, 2, 0])
def test_what_nobody_waits_for_any_more_is_dropped_whether_an_answer_came_in_part_or_not_at_all(grid, parts) -> None:
    id, asked, node = sent(grid)
    if parts is not None:
        push(grid, asked, node, 3.0, parts)
    assert grid.pull_messages([id]) == []
    assert len(grid.state.object_store) > 0
    grid.forget([id])
    assert len(grid.state.object_store) == 0
    assert grid.state.get_message_ins(node_id=node, limit=1) == []


def test_a_message_has_one_answer_which_may_be_sent_again(grid) -> None:
    id, asked, node = sent(grid)
    push(grid, asked, node, 3.0, 1)
    with pytest.raises(PermissionError, match="a second answer to the same message"):
        push(grid, asked, node, 4.0)
    assert grid.pull_messages([id]) == []
