"""Who may speak to the server, and what about: in front of Flower's fleet interface, which is all that is served.

Flower 1.41 serves three interfaces on one port: fleet (messages of nodes), control (start and stop runs, register
nodes) and runtime (the processes of apps). In its open version nothing asks who calls the latter two. So they are not
part of this server at all. Of the fleet interface, a site may use what carries its own messages: TLS has checked the
certificate that the operator issued, its key must be the one that the operator keeps for this site, Flower's signature
must be by the same key, and a message must be this node's own. Flower's handlers check the last point only in part.
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.error import http_error_translator
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.superlink.dependencies.linkstate import get_linkstate
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet_router
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyfed.deploy.keys import public_bytes

log = logging.getLogger("polyfed")
PREFIX = "/v1/fleet/"
SERVED = frozenset(
    PREFIX + name
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""What a site may ask for. Registering, and fetching apps, are not among it."""
LARGEST_REQUEST = 16 * 2**20
"""Flower cuts arrays into pieces of 5 MiB."""
MOST_PARTS = 10_000
"""The parts of an answer: its records, arrays and pieces of arrays."""
MOST_OPEN = 64
"""The answers of a site that are kept until they are complete."""
PEER = "polyfed.peer"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Kept = TypeVar("Kept")


class PeerProtocol(H11Protocol):
    """HTTP whose requests know the certificate that TLS has checked."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls, app = transport.get_extra_info("ssl_object"), self.app
        certificate = None if tls is None else tls.getpeercert(binary_form=True)

        async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, PEER: certificate}, receive, send)

        self.app = with_peer


@dataclass
class Mail:
    """What belongs to one site: the messages that it was handed, and the answers that it has begun."""

    handed: dict[str, set[str]] = field(default_factory=dict)
    """the parts of each message, by its id"""
    begun: dict[str, int] = field(default_factory=dict)
    """the bytes so far of each answer, by its push session"""
    parts: dict[str, list[str]] = field(default_factory=dict)
    """the parts of each answer, by its id"""
    answers: dict[str, str] = field(default_factory=dict)
    """the answer to each message, by the message's id"""


@dataclass
class Gatekeeper:
    """The sites' keys as the operator keeps them, and each site's mail."""

    keys: dict[bytes, str]
    """site by public key"""
    largest: int
    """the most bytes of one answer"""
    mail: dict[int, Mail] = field(default_factory=dict)
    """by node"""
    refused: dict[str, int] = field(default_factory=dict)
    """how many requests were refused, by site"""

    def site(self, certificate: bytes | None, claimed: str) -> str:
        """The site that a request comes from, or a refusal."""
        if certificate is None:
            raise PermissionError("it shows no certificate")
        key = x509.load_der_x509_certificate(certificate).public_key()
        known = public_bytes(key) if isinstance(key, ec.EllipticCurvePublicKey) else b""
        if known not in self.keys:
            raise PermissionError("its certificate's key is not one that is kept in keys/")
        try:
            signer = b64decode(claimed, validate=True)
        except binascii.Error:
            signer = b""
        if signer != known:
            raise PermissionError(f"site '{self.keys[known]}' speaks under another site's key")
        return self.keys[known]

    def note(self, site: str) -> None:
        self.refused[site] = self.refused.get(site, 0) + 1

    def check(self, request: object, state: LinkState) -> None:
        """Refuse what is not this node's own; Flower has checked that the node is the signing key's."""
        if isinstance(request, ActivateNodeRequest):
            node = state.get_node_id_by_public_key(request.public_key)
            if node is not None:  # a site that was killed comes back before it is missed: it takes its place again
                state.deactivate_node(node)
        elif isinstance(request, PushMessagesRequest):
            if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
                raise PermissionError("one answer at a time")
            tree, node = request.message_object_trees[0], request.node.node_id
            metadata = request.messages_list[0].metadata
            if metadata.src_node_id != node or metadata.reply_to_message_id not in self._mail(node).handed:
                raise PermissionError("an answer to a message that another site was sent")
            parts, mail = _parts(tree, MOST_PARTS), self._mail(node)
            if parts is None or tree.object_id != metadata.message_id:
                raise PermissionError(f"an answer of more than {MOST_PARTS} parts, or not of its own")
            given = mail.answers.get(metadata.reply_to_message_id, tree.object_id)
            if given != tree.object_id or mail.parts.get(given, parts) != parts:
                raise PermissionError("a second answer to the same message")
        elif isinstance(request, PushObjectRequest):
            mail = self._mail(request.node.node_id)
            if request.session_id not in mail.begun:
                raise PermissionError("a part of an answer that this site has not begun")
            mail.begun[request.session_id] += len(request.object_content)
            if mail.begun[request.session_id] > self.largest:
                raise PermissionError(f"an answer of more than {self.largest} bytes")
        elif isinstance(request, PullObjectRequest):
            handed = self._mail(request.node.node_id).handed
            if not any(request.object_id in parts for parts in handed.values()):
                raise PermissionError("a part of a message that another site was sent")
        elif isinstance(request, ConfirmMessageReceivedRequest):
            handed = self._mail(request.node.node_id).handed
            if request.message_object_id not in handed:
                raise PermissionError("a message that another site was sent")

    def keep(self, request: Any, response: Any) -> None:
        """Remember what the node was handed, or began."""
        if isinstance(response, PullMessagesResponse):
            for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                parts = {part.object_id for part in iterate_object_tree(tree)}
                _put(self._mail(request.node.node_id).handed, message.metadata.message_id, parts)
        elif isinstance(request, PushMessagesRequest):
            mail, tree = self._mail(request.node.node_id), request.message_object_trees[0]
            _put(mail.begun, response.session_id, 0)
            _put(mail.answers, request.messages_list[0].metadata.reply_to_message_id, tree.object_id)
            _put(mail.parts, tree.object_id, _parts(tree, MOST_PARTS) or [])

    def parts_of(self, node: int, answer: str) -> list[str]:
        """The parts of an answer, as its site announced them."""
        return self._mail(node).parts.get(answer, [])

    def _mail(self, node: int) -> Mail:
        return self.mail.setdefault(node, Mail())


class OwnMailOnly(BaseHTTPMiddleware):
    """Lets a node handle its own messages and nobody else's."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        keeper: Gatekeeper = request.app.state.gatekeeper
        asked = getattr(request.state, "protobuf_request", None)
        try:
            keeper.check(asked, get_linkstate(request))
        except PermissionError as refusal:
            site = request.scope["polyfed.site"]
            keeper.note(site)
            log.warning("site '%s' was refused: %s", site, refusal)
            raise HTTPException(status_code=403, detail=str(refusal)) from None
        response = await call_next(request)
        answered = getattr(request.state, "protobuf_response", None)
        if answered is not None:
            keeper.keep(asked, answered)
        return response


class KnownSitesOnly:
    """The outermost door: the paths that are served, to sites that the operator knows, in requests of bounded size."""

    def __init__(self, app: App, keeper: Gatekeeper) -> None:
        self.app, self.keeper = app, keeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"] not in SERVED:
            await _answer(send, 404)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            scope["polyfed.site"] = self.keeper.site(
                scope.get(PEER), headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode(), "")
            )
        except PermissionError as refusal:
            log.warning("a request was refused: %s", refusal)
            await _answer(send, 403)
            return
        size = (
            "" if b"transfer-encoding" in headers else headers.get(b"content-length", "")
        )  # in chunks it says nothing
        if not size.isdecimal() or int(size) > LARGEST_REQUEST:
            self.keeper.note(scope["polyfed.site"])
            log.warning("site '%s' was refused: a request of %s bytes", scope["polyfed.site"], size or "unsaid")
            await _answer(send, 413)
            return
        await self.app(scope, receive, send)


def fleet_app(factory: LinkStateFactory, keeper: Gatekeeper) -> App:
    """Flower's fleet interface and nothing else, behind the gate."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
            Middleware(ProtobufTranslationMiddleware),
            Middleware(NodeAuthMiddleware),
            Middleware(OwnMailOnly),
        ],
    )
    app.state.linkstate_factory = factory
    app.state.enable_supernode_auth = True
    app.state.fleet_event_log_plugin = None
    app.state.gatekeeper = keeper
    app.include_router(fleet_router)
    return KnownSitesOnly(app, keeper)


async def _answer(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def _parts(tree: ObjectTree, most: int) -> list[str] | None:
    """The ids in a tree; None if there are more than `most`."""
    ids = []
    for part in iterate_object_tree(tree):
        ids.append(part.object_id)
        if len(ids) > most:
            return None
    return list(dict.fromkeys(ids))


def _put(kept: dict[str, Kept], name: str, value: Kept) -> None:
    """Keep the newest few: what a site leaves unfinished is forgotten."""
    kept[name] = value
    while len(kept) > MOST_OPEN:
        del kept[next(iter(kept))]
