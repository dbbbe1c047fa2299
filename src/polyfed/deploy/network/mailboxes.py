"""The sites' mailboxes, inside the server's process: messages that wait for a site, and the answers that it gave."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from flwr.app import RecordDict

from polyfed.deploy.protocol.envelope import ERROR, Envelope
from polyfed.deploy.protocol.messages import Answer, SiteGrid
from polyfed.deploy.protocol.plain_values import Refused

log = logging.getLogger("polyfed")
SILENT = 60.0
"""Seconds without a request after which a site counts as gone. One that is there makes one at least every `BEAT`."""
BEAT = 10.0


@dataclass
class Mailbox:
    """One site's."""

    session: str = ""
    """a word that its process was given when it connected; empty before"""
    heard: float = -SILENT
    """when it made its last request"""
    messages: dict[str, Envelope] = field(default_factory=dict)
    """those that it has not answered, by their ids"""
    handed: set[str] = field(default_factory=set)
    """which of them it has fetched"""
    answers: dict[str, bytes] = field(default_factory=dict)
    """by the message that each was given to"""

    @property
    def online(self) -> bool:
        return bool(self.session) and time.monotonic() - self.heard < SILENT


class Mailboxes(SiteGrid):
    """All sites' mailboxes: the gate serves them to sites, and a run puts messages in and takes answers out."""

    def __init__(self, sites: Iterable[str]) -> None:
        self._boxes = {site: Mailbox() for site in sites}
        self._lock = Lock()

    # For sites, through the gate.

    def connect(self, site: str) -> str:
        """A site's process is there; returns its session. What an earlier one fetched, or did not, is dropped."""
        with self._lock:
            old = self._boxes[site]
            box = self._boxes[site] = Mailbox(secrets.token_hex(16), time.monotonic(), answers=old.answers)
        return box.session

    def leave(self, site: str) -> None:
        self._boxes[site].session = ""

    def heard(self, site: str, session: str) -> bool:
        """Whether this is the session of the site's process that connected last; it is there, then."""
        box = self._boxes[site]
        if not box.session or not secrets.compare_digest(box.session.encode(), session.encode()):
            return False
        box.heard = time.monotonic()
        return True

    def next(self, site: str) -> tuple[str, Envelope] | None:
        """The oldest message that the site has not fetched."""
        with self._lock:
            box = self._boxes[site]
            for message, envelope in box.messages.items():
                if message not in box.handed:
                    box.handed.add(message)
                    return message, envelope
        return None

    def refuse_answer(self, site: str, message: str) -> None:
        """Refuse an answer to what this site was not sent, or has answered."""
        box = self._boxes[site]
        if message in box.answers:
            raise PermissionError("a second answer to the same message")
        if message not in box.handed:
            raise PermissionError("an answer to a message that it does not have")

    def put(self, site: str, message: str, answer: bytes) -> None:
        """The whole of a site's answer."""
        with self._lock:
            self.refuse_answer(site, message)
            box = self._boxes[site]
            box.answers[message] = answer
            box.handed.discard(message)
            del box.messages[message]

    # For runs.

    def presence(self) -> dict[str, bool]:
        return {site: box.online for site, box in self._boxes.items()}

    def connected(self) -> dict[str, str]:
        return {site: box.session for site, box in self._boxes.items() if box.online}

    def send(self, site: str, kind: str, content: RecordDict) -> str:
        message = secrets.token_hex(16)
        with self._lock:
            self._boxes[site].messages[message] = Envelope(kind, content)
        return message

    def answers(self, messages: Iterable[str]) -> list[Answer]:
        came = []
        for message in messages:
            for box in self._boxes.values():
                data = box.answers.pop(message, None)
                if data is not None:
                    came.append(read_answer(message, data))
        return came

    def forget(self, messages: Iterable[str]) -> None:
        for message in messages:
            self._drop(lambda given, gone=message: given == gone)

    def clear(self) -> None:
        """A run has ended: nobody waits for anything."""
        self._drop(lambda _: True)

    def _drop(self, gone: Callable[[str], bool]) -> None:
        with self._lock:
            for box in self._boxes.values():
                box.handed = {message for message in box.handed if not gone(message)}
                box.messages = {message: given for message, given in box.messages.items() if not gone(message)}
                box.answers = {message: given for message, given in box.answers.items() if not gone(message)}


def read_answer(message: str, data: bytes) -> Answer:
    """What a site answered; bytes that are no answer are an error of the site."""
    try:
        envelope = Envelope.read(data)
    except Refused as refusal:
        return Answer(message, RecordDict(), f"its answer cannot be read: {refusal}")
    if envelope.kind == ERROR:
        why = envelope.content.config_records.get(ERROR, {}).get("why", "")
        return Answer(message, RecordDict(), str(why) or "it does not say why")
    return Answer(message, envelope.content)
