"""Who may speak to the server, and what about: the few requests that a site can make, over TLS with its certificate.

There is no request that starts or stops a run, registers a site, or brings or fetches code. TLS has checked the
certificate that the operator issued, and that whoever shows it has the key; the key must be the one that the operator
keeps for a site. A site has its own mailbox and no other: no request says whose it is about.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyfed.deploy.keys import public_bytes
from polyfed.deploy.network.mailboxes import Mailboxes

log = logging.getLogger("polyfed")
CONNECT, LEAVE, BEAT, NEXT, ANSWER = SERVED = ("/v1/connect", "/v1/leave", "/v1/beat", "/v1/next", "/v1/answer")
"""All that a site may ask for."""
SESSION, MESSAGE = "polyfed-session", "polyfed-message"
"""The headers that name the session that `CONNECT` gave, and a message."""
PEER = "polyfed.peer"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class PeerProtocol(H11Protocol):
    """HTTP whose requests know the certificate that TLS has checked."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls, app = transport.get_extra_info("ssl_object"), self.app
        certificate = None if tls is None else tls.getpeercert(binary_form=True)

        async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, PEER: certificate}, receive, send)

        self.app = with_peer


class Refusal(Exception):
    """A request that is not served: the status that says so, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Gate:
    """Serves sites their mailboxes."""

    keys: dict[bytes, str]
    """site by public key, as the operator keeps them"""
    largest: int
    """the most bytes of one answer"""
    mail: Mailboxes
    refused: dict[str, int] = field(default_factory=dict)
    """how many requests were refused, by site"""
    _arriving: dict[str, asyncio.Task[bytes]] = field(default_factory=dict)
    """the answer that a site is sending: one at a time"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in SERVED or scope["method"] != "POST":
            await _respond(send, 404)
            return
        heads = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            site = self.site(scope.get(PEER))
        except PermissionError as refusal:
            log.warning("a request was refused: %s", refusal)
            await _respond(send, 403)
            return
        try:
            await self._serve(site, scope["path"], heads, receive, send)
        except Refusal as refusal:
            self.refused[site] = self.refused.get(site, 0) + 1
            log.warning("site '%s' was refused: %s", site, refusal)
            await _respond(send, refusal.status)

    def site(self, certificate: bytes | None) -> str:
        """The site that a request comes from, or a refusal."""
        if certificate is None:
            raise PermissionError("it shows no certificate")
        key = x509.load_der_x509_certificate(certificate).public_key()
        known = public_bytes(key) if isinstance(key, ec.EllipticCurvePublicKey) else b""
        if known not in self.keys:
            raise PermissionError("its certificate's key is not one that is kept in keys/")
        return self.keys[known]

    async def _serve(self, site: str, path: str, heads: dict[str, str], receive: Receive, send: Send) -> None:
        size = "" if "transfer-encoding" in heads else heads.get("content-length", "")  # in chunks it says nothing
        most = self.largest if path == ANSWER else 0
        if not size.isdecimal() or len(size) > 18 or int(size) > most:
            raise Refusal(413, f"a request of {size[:20] or 'unsaid'} bytes")
        if path == CONNECT:
            await _respond(send, 200, [self.mail.connect(site).encode()])
            return
        if not self.mail.heard(site, heads.get(SESSION, "")):
            raise Refusal(409, "it has not connected, or has connected again")
        if path == LEAVE:
            self.mail.leave(site)
        if path == NEXT:
            await self._next(site, send)
            return
        if path == ANSWER:
            await self._answer(site, heads.get(MESSAGE, ""), receive)
        await _respond(send, 204)

    async def _next(self, site: str, send: Send) -> None:
        found = self.mail.next(site)
        if found is None:
            await _respond(send, 204)
        else:
            await _respond(send, 200, found[1].parts(), {MESSAGE: found[0]})

    async def _answer(self, site: str, message: str, receive: Receive) -> None:
        """Take an answer when all of it is there. What its site began before, and left, is dropped."""
        try:
            self.mail.refuse_answer(site, message)
            if site in self._arriving:
                self._arriving[site].cancel()
            self._arriving[site] = reading = asyncio.create_task(_body(receive))
            try:
                data = await reading
            finally:
                if self._arriving.get(site) is reading:
                    del self._arriving[site]
            self.mail.put(site, message, data)
        except asyncio.CancelledError:
            raise Refusal(409, "it began another answer before this one was there") from None
        except PermissionError as refusal:
            raise Refusal(403, str(refusal)) from None


async def _body(receive: Receive) -> bytes:
    """All of a request's body, which is as long as it said."""
    data = bytearray()
    while True:
        event = await receive()
        data += event.get("body", b"")
        if event["type"] == "http.disconnect":
            raise PermissionError("an answer that ended too early")
        if not event.get("more_body"):
            return bytes(data)


async def _respond(
    send: Send, status: int, body: list[bytes] | None = None, heads: dict[str, str] | None = None
) -> None:
    body = body or []
    sent = [] if status == 204 else [(b"content-length", str(sum(map(len, body))).encode())]
    sent += [(name.encode(), value.encode()) for name, value in (heads or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    for piece in body:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
