"""Messages to sites and their answers: who is connected, who is asked again, and when to go on without the others."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from polyfed.deploy.protocol.plain_values import Refused, printable, readable

log = logging.getLogger("polyfed")
ATTEMPTS = 3
"""How often a site whose app fails is asked in one round. A site that was restarted is asked as often as it takes."""
UNREACHABLE = (3, 4, 5)
"""Flower's error codes for lost messages and nodes that cannot be reached: the site itself did not fail."""

MessageFor = Callable[[str], RecordDict]
"""The message to a site, by the site's name."""
TakeAnswer = Callable[[str, RecordDict], str | None]
"""Takes a site's answer; returns None, or why it refuses it."""


class SiteGrid(Grid):
    """A grid that can drop messages that nobody waits for any more."""

    @abstractmethod
    def forget(self, message_ids: Iterable[str]) -> None:
        """Drop these messages, and what has come in answer to them."""


@dataclass
class OpenMessages:
    """The messages to one site that it has not answered yet."""

    node: int
    since: str
    """when its node was started, in Flower's words: a node that was restarted has lost the message"""
    ids: set[str]


@dataclass
class SiteMessenger:
    """Reaches the sites behind a grid by the names under which their keys were registered."""

    grid: SiteGrid
    roster: tuple[str, ...]
    poll: float = 0.2
    note_refusal: Callable[[str], None] = lambda site: None
    """told of every answer that is refused"""
    _strangers: set[int] = field(default_factory=set)

    def connected(self) -> dict[str, tuple[int, str]]:
        """The sites that are connected: {name: (node, when it was started)}. A node outside the roster is logged."""
        nodes = {}
        for node in self.grid.get_nodes():
            if node.name in self.roster:
                nodes[node.name] = (node.node_id, node.last_activated_at)
            elif node.node_id not in self._strangers:
                self._strangers.add(node.node_id)
                log.warning("node %d ('%s') is not on the roster and is not asked", node.node_id, node.name)
        return nodes

    def ask(
        self,
        sites: Iterable[str],
        content: MessageFor,
        kind: str,
        *,
        deadline: float,
        take: TakeAnswer,
        group: str = "",
        sent: dict[str, OpenMessages] | None = None,
        until: float = 0.0,
    ) -> set[str]:
        """Send each of these sites its message, and hand the answers to `take`. Returns the sites whose answer it took.

        A site that connects late or was restarted is asked (again) until the deadline. A site whose answer is refused,
        or whose app fails `ATTEMPTS` times, is not asked again. With `sent`, which holds the messages of an earlier
        call with the same content, an answer to one of these counts, too: so long as `until` they may come.
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
                node, since = connected[site]
                before = sent.get(site)
                if before is None or before.node != node or before.since != since or not before.ids:
                    left = max(1.0, max(end, until) - time.monotonic())
                    message = Message(content(site), node, kind, ttl=left, group_id=group)
                    ids = {str(id) for id in self.grid.push_messages([message])}
                    sent[site] = OpenMessages(node, since, ids if before is None else before.ids | ids)
            owner = {id: site for site, messages in sent.items() for id in messages.ids if site in waiting}
            for reply in self.grid.pull_messages(list(owner)) if owner else []:
                site = owner.get(reply.metadata.reply_to_message_id)
                if site is None or site not in waiting:
                    continue
                sent[site].ids.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    failures[site] = failures.get(site, 0) + (reply.error.code not in UNREACHABLE)
                    log.warning("site '%s' failed: %s", site, printable(str(reply.error.reason), 200))
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


def _taken(take: TakeAnswer, site: str, reply: Message) -> str | None:
    """Why an answer is refused. What a site sends ends nothing but its own part in the round, whatever it is."""
    try:
        return take(site, reply.content)
    except Refused as refusal:
        return readable(refusal)
    except Exception as error:
        log.exception("site '%s': its answer could not be read", site)
        return readable(error)
