"""Messages to sites and their answers: who is connected, who is asked again, and when to go on without the others."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import RecordDict

from polyfed.deploy.protocol.plain_values import Refused, printable, readable

log = logging.getLogger("polyfed")
ATTEMPTS = 3
"""How often a site whose app fails is asked in one round. A site that was restarted is asked as often as it takes."""

MessageFor = Callable[[str], RecordDict]
"""The message to a site, by the site's name."""
TakeAnswer = Callable[[str, RecordDict], str | None]
"""Takes a site's answer; returns None, or why it refuses it."""


@dataclass
class Answer:
    """A site's answer to a message: its content, or why it has none."""

    asked: str
    """the message that it was given to, whatever it says itself"""
    content: RecordDict
    error: str = ""


class SiteGrid(ABC):
    """Carries messages to sites, and their answers back. Nothing that a site sends can stop it or hold it up."""

    @abstractmethod
    def connected(self) -> dict[str, str]:
        """The sites that are connected, and for each a word that changes when it connects anew."""

    @abstractmethod
    def send(self, site: str, kind: str, content: RecordDict) -> str:
        """Have a message ready for a site; returns the message's id. A site that connects anew has lost it."""

    @abstractmethod
    def answers(self, messages: Iterable[str]) -> list[Answer]:
        """The answers to these messages that are there in whole; each is given once."""

    @abstractmethod
    def forget(self, messages: Iterable[str]) -> None:
        """Drop these messages, and what has come in answer to them."""


@dataclass
class OpenMessages:
    """The messages to one site that it has not answered yet."""

    since: str
    """what `SiteGrid.connected` said of the site: one that connected anew has lost the messages"""
    ids: set[str]


@dataclass
class SiteMessenger:
    """Reaches the sites of a roster through a grid."""

    grid: SiteGrid
    roster: tuple[str, ...]
    poll: float = 0.2
    note_refusal: Callable[[str], None] = lambda site: None
    """told of every answer that is refused"""
    _strangers: set[str] = field(default_factory=set)

    def connected(self) -> dict[str, str]:
        """The sites of the roster that are connected, as the grid says. Others are logged."""
        there = self.grid.connected()
        for site in there.keys() - set(self.roster) - self._strangers:
            self._strangers.add(site)
            log.warning("site '%s' is not on the roster and is not asked", site)
        return {site: since for site, since in there.items() if site in self.roster}

    def ask(
        self,
        sites: Iterable[str],
        content: MessageFor,
        kind: str,
        *,
        deadline: float,
        take: TakeAnswer,
        sent: dict[str, OpenMessages] | None = None,
    ) -> set[str]:
        """Send each of these sites its message, and hand the answers to `take`. Returns the sites whose answer it took.

        A site that connects late or was restarted is asked (again) until the deadline. A site whose answer is refused,
        or whose app fails `ATTEMPTS` times, is not asked again. With `sent`, which holds the messages of an earlier
        call with the same content, an answer to one of these counts, too.
        """
        end = time.monotonic() + deadline
        waiting, taken = list(sites), set()
        kept, sent = sent is not None, {} if sent is None else sent
        failures: dict[str, int] = {}
        while waiting:
            connected = self.connected()
            for site in waiting:
                if site not in connected:
                    continue
                since, before = connected[site], sent.get(site)
                if before is None or before.since != since or not before.ids:
                    ids = {self.grid.send(site, kind, content(site))}
                    sent[site] = OpenMessages(since, ids if before is None else before.ids | ids)
            owner = {id: site for site, messages in sent.items() for id in messages.ids if site in waiting}
            for reply in self.grid.answers(list(owner)) if owner else []:
                site = owner[reply.asked]
                if site not in waiting:
                    continue
                sent[site].ids.discard(reply.asked)
                if reply.error:
                    failures[site] = failures.get(site, 0) + 1
                    log.warning("site '%s' failed: %s", site, printable(reply.error, 200))
                    if failures[site] >= ATTEMPTS:
                        waiting.remove(site)
                    continue
                refusal = _taken(take, site, reply)
                waiting.remove(site)
                if refusal is None:
                    taken.add(site)
                else:
                    self.note_refusal(site)
                    log.warning("site '%s' refused: %s", site, printable(refusal))
            if waiting and time.monotonic() >= end:
                log.warning("no answer in time from %s", ", ".join(f"'{site}'" for site in waiting))
                break
            if waiting:
                time.sleep(self.poll)
        if not kept:
            self.forget(sent)
        return taken

    def forget(self, sent: dict[str, OpenMessages]) -> None:
        """Drop the messages that were not answered: the server need not keep them, nor what comes too late."""
        open = [id for messages in sent.values() for id in messages.ids]
        if open:
            self.grid.forget(open)


def _taken(take: TakeAnswer, site: str, reply: Answer) -> str | None:
    """Why an answer is refused. What a site sends ends nothing but its own part in the round, whatever it is."""
    try:
        return take(site, reply.content)
    except Refused as refusal:
        return readable(refusal)
    except Exception as error:
        log.exception("site '%s': its answer could not be read", site)
        return readable(error)
