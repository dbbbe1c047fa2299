"""A site's side of Flower: it fetches the server's messages, answers them in this process, and runs nothing that comes.

Flower's own SuperNode fetches an app with every run and starts it. This one speaks the same fleet interface through
Flower's client, but never asks for an app: what answers is `Site`, as it is installed here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import httpx
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from polyfed.deploy.flower.grid import as_message
from polyfed.deploy.flower.processes import locked
from polyfed.deploy.keys import public_bytes, read_private_key, site_context
from polyfed.deploy.protocol.plain_values import printable
from polyfed.deploy.settings import SiteSettings

log = logging.getLogger("polyfed")
POLL = 0.2
"""Seconds between looks for messages."""
TRY_AGAIN = 2.0
"""Seconds after which a site that lost its server, or was turned away, tries again."""
LARGEST_MESSAGE = 4 * 2**30
LOCK = "site.lock"
"""Held in the site's folder while it runs: two processes there would mix its states."""


class Unreadable(Exception):
    """A message that cannot be put together."""


class SuperNode:
    """A running site: one thread fetches and answers messages, another tells the server that the site is there."""

    def __init__(self, settings: SiteSettings, say: Callable[[str], None] = log.info) -> None:
        self.settings, self.site, self._say = settings, settings.site(), say
        key = read_private_key(settings.key)
        self._lock = ExitStack()
        self._lock.enter_context(locked(settings.folder / LOCK, wait=5.0))
        self._public = public_bytes(key.public_key())
        self._context = site_context(settings.certificate, settings.own_certificate, key)
        self._signer = NodeAuthHttpInterceptor(key, key.public_key())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=2.0)
        self._lock.close()

    def _serve(self) -> None:
        """Stay connected: a server that is gone, or does not know this site yet, is tried again."""
        told = ""
        while not self._ended.is_set():
            try:
                with self._client() as client:
                    node = self._activated(client)
                    told = ""
                    self._say(f"site '{self.settings.name}': connected to {self.settings.server}")
                    self._answer_messages(client, node)
            except (httpx.HTTPError, OSError, ValueError) as error:
                why = _reason(error)
                if why != told:
                    self._say(f"site '{self.settings.name}': {why}; trying again")
                told = why
                self._ended.wait(TRY_AGAIN)

    def _client(self) -> FleetHttpClient:
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), self._signer]
        return FleetHttpClient(f"https://{self.settings.server}", interceptors=interceptors, verify=self._context)

    def _activated(self, client: FleetHttpClient) -> Node:
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        try:
            return Node(node_id=client.ActivateNode(request).node_id)
        except httpx.HTTPStatusError as error:
            if error.response.status_code >= 500:
                raise
            raise ValueError(f"the server turned this site away ({error.response.status_code})") from None

    def _answer_messages(self, client: FleetHttpClient, node: Node) -> None:
        beat = threading.Event()
        heart = threading.Thread(target=self._beat, args=(node, beat), daemon=True)
        heart.start()
        try:
            while not self._ended.is_set():
                pulled = client.PullMessages(PullMessagesRequest(node=node))
                if not pulled.messages_list:
                    self._ended.wait(POLL)
                    continue
                asked = message_from_proto(pulled.messages_list[0])
                self._reply(client, node, self._answer(client, node, asked, pulled.message_object_trees[0]))
        finally:
            beat.set()
            with suppress(httpx.HTTPError, OSError):  # the server may be gone
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))

    def _beat(self, node: Node, ended: threading.Event) -> None:
        """Tell the server that this site is there, also while it computes."""
        request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        with self._client() as client:
            while not ended.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
                try:
                    client.SendNodeHeartbeat(request)
                except (httpx.HTTPError, OSError) as error:
                    log.warning("site '%s': %s", self.settings.name, _reason(error))

    def _answer(self, client: FleetHttpClient, node: Node, asked: Message, tree: ObjectTree) -> Message:
        """The site's answer; a message that cannot be read, or fails, is answered with an error."""
        try:
            content: Any = self._fetched(client, node, asked, tree).content
        except (Unreadable, ValueError, KeyError, TypeError, RecursionError) as error:
            return as_message(Error(ErrorCode.UNKNOWN, f"the message cannot be read: {error}"), asked)
        confirm = ConfirmMessageReceivedRequest(
            node=node, run_id=asked.metadata.run_id, message_object_id=asked.metadata.message_id
        )
        client.ConfirmMessageReceived(confirm)
        try:
            return as_message(self.site.answer(asked.metadata.message_type, content), asked)
        except Exception as error:  # a message must not end a site
            log.exception("site '%s': a message failed", self.settings.name)
            return as_message(Error(ErrorCode.UNKNOWN, f"{type(error).__name__}: {error}"), asked)

    def _fetched(self, client: FleetHttpClient, node: Node, asked: Message, tree: ObjectTree) -> Message:
        contents: dict[str, bytes] = {}
        size = 0
        for part in iterate_object_tree(tree):
            if part.object_id not in contents:
                request = PullObjectRequest(node=node, run_id=asked.metadata.run_id, object_id=part.object_id)
                pulled = client.PullObject(request)
                if not pulled.object_available:
                    raise Unreadable("a part of it is missing")
                contents[part.object_id] = pulled.object_content
                size += len(pulled.object_content)
                if size > LARGEST_MESSAGE:
                    raise Unreadable(f"it has more than {LARGEST_MESSAGE} bytes")
        inflated: Any = inflate_object_from_contents(asked.metadata.message_id, contents)
        if not isinstance(inflated, Message) or not inflated.has_content():
            raise Unreadable("it is no message with content")
        return inflated

    def _reply(self, client: FleetHttpClient, node: Node, answer: Message) -> None:
        begun = time.monotonic()
        tree, objects = get_object_tree(answer), get_all_nested_objects(answer)
        pushed = client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(answer))],
                message_object_trees=[tree],
                clientapp_runtime_list=[time.monotonic() - begun],
            )
        )
        for part in pushed.objects_to_push:
            client.PushObject(
                PushObjectRequest(
                    node=node,
                    run_id=answer.metadata.run_id,
                    object_id=part,
                    object_content=objects[part].deflate(),
                    session_id=pushed.session_id,
                )
            )


def _reason(error: Exception) -> str:
    """What went wrong between this site and its server, in a sentence."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"the server refused a request ({error.response.status_code})"
    if isinstance(error, httpx.ConnectError):
        return f"the server cannot be reached ({printable(str(error))})"
    return printable(str(error)) or type(error).__name__
