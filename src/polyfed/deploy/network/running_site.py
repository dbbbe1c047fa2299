"""A site's process: it fetches the server's messages, answers them, and runs nothing that comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx

from polyfed.deploy.keys import read_private_key, site_context
from polyfed.deploy.network import gate
from polyfed.deploy.network.mailboxes import BEAT
from polyfed.deploy.network.processes import locked
from polyfed.deploy.protocol.envelope import Envelope, error_envelope
from polyfed.deploy.protocol.plain_values import Refused, printable
from polyfed.deploy.settings import SiteSettings

log = logging.getLogger("polyfed")
POLL = 0.2
"""Seconds between looks for messages."""
TRY_AGAIN = 2.0
"""Seconds after which a site that lost its server, or was turned away, tries again."""
TIMEOUT = httpx.Timeout(60.0)
"""Seconds that one step on the line may take."""
LARGEST_MESSAGE = 4 * 2**30
LOCK = "site.lock"
"""Held in the site's folder while it runs: two processes there would mix its states."""


class RunningSite:
    """A site at work: one thread fetches and answers messages, another tells the server that the site is there."""

    def __init__(self, settings: SiteSettings, say: Callable[[str], None] = log.info) -> None:
        self.settings, self.site, self._say = settings, settings.site(), say
        self._lock = ExitStack()
        self._lock.enter_context(locked(settings.folder / LOCK, wait=5.0))
        self._context = site_context(settings.certificate, settings.own_certificate, read_private_key(settings.key))
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
                with self._connected() as client:
                    told = ""
                    self._say(f"site '{self.settings.name}': connected to {self.settings.server}")
                    self._answer_messages(client)
            except (httpx.HTTPError, OSError, ValueError) as error:
                why = _reason(error)
                if why != told:
                    self._say(f"site '{self.settings.name}': {why}; trying again")
                told = why
                self._ended.wait(TRY_AGAIN)

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=f"https://{self.settings.server}", verify=self._context, timeout=TIMEOUT)

    @contextmanager
    def _connected(self) -> Iterator[httpx.Client]:
        """A line to the server, which says at its other end that the site is there, also while it computes."""
        ended = threading.Event()
        with self._client() as client:
            answer = client.post(gate.CONNECT)
            if 400 <= answer.status_code < 500:
                raise ValueError(f"the server turned this site away ({answer.status_code})")
            client.headers[gate.SESSION] = answer.raise_for_status().text
            threading.Thread(target=self._beat, args=(client.headers[gate.SESSION], ended), daemon=True).start()
            try:
                yield client
            finally:
                ended.set()
                with suppress(httpx.HTTPError, OSError):  # the server may be gone
                    client.post(gate.LEAVE)

    def _beat(self, session: str, ended: threading.Event) -> None:
        with self._client() as client:
            while not ended.wait(BEAT):
                try:
                    client.post(gate.BEAT, headers={gate.SESSION: session}).raise_for_status()
                except (httpx.HTTPError, OSError) as error:
                    log.warning("site '%s': %s", self.settings.name, _reason(error))

    def _answer_messages(self, client: httpx.Client) -> None:
        while not self._ended.is_set():
            fetched = self._fetched(client)
            if fetched is None:
                self._ended.wait(POLL)
                continue
            message, data = fetched
            parts = self._answer(data).parts()
            heads = {gate.MESSAGE: message, "content-length": str(sum(map(len, parts)))}
            client.post(gate.ANSWER, content=iter(parts), headers=heads).raise_for_status()

    def _fetched(self, client: httpx.Client) -> tuple[str, bytes] | None:
        """The next message with its id; None if there is none."""
        with client.stream("POST", gate.NEXT) as response:
            if response.raise_for_status().status_code == 204:
                return None
            data = bytearray()
            for piece in response.iter_raw():
                data += piece
                if len(data) > LARGEST_MESSAGE:
                    raise ValueError(f"the server sent a message of more than {LARGEST_MESSAGE} bytes")
            return response.headers.get(gate.MESSAGE, ""), bytes(data)

    def _answer(self, data: bytes) -> Envelope:
        """The site's answer; a message that cannot be read, or fails, is answered with an error."""
        try:
            asked = Envelope.read(data)
        except Refused as refusal:
            return error_envelope(str(refusal))
        try:
            return Envelope(asked.kind, self.site.answer(asked.kind, asked.content))
        except Exception as error:  # a message must not end a site
            log.exception("site '%s': a message failed", self.settings.name)
            return error_envelope(f"{type(error).__name__}: {error}")


def _reason(error: Exception) -> str:
    """What went wrong between this site and its server, in a sentence."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"the server refused a request ({error.response.status_code})"
    if isinstance(error, httpx.ConnectError):
        return f"the server cannot be reached ({printable(str(error))})"
    return printable(str(error)) or type(error).__name__
