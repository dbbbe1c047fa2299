"""Messages to sites and their answers: who is there, who is asked again, and when to go on without the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

log = logging.getLogger("polyfed")
ATTEMPTS = 3
"""How often a site whose app fails is asked in one round; one that was restarted is asked as often as it takes."""
GONE = (3, 4, 5)
"""Flower's error codes for messages that were lost, and nodes that cannot be reached: the site itself did not fail."""


@dataclass
class Asked:
    """What is under way with one site."""

    node: int
    since: str
    """when its node was started, as Flower tells it: a node that was restarted has lost the message"""
    ids: set[str]


@dataclass
class Sites:
    """The sites behind a grid, by the names under which their keys were registered."""

    grid: Grid
    roster: tuple[str, ...]
    poll: float = 0.2
    _strangers: set[int] = field(default_factory=set)

    def present(self) -> dict[str, tuple[int, str]]:
        """The sites that are connected: {name: (node, when it was started)}. A node that is on no roster is named."""
        found = {}
        for node in self.grid.get_nodes():
            if node.name in self.roster:
                found[node.name] = (node.node_id, node.last_activated_at)
            elif node.node_id not in self._strangers:
                self._strangers.add(node.node_id)
                log.warning("node %d ('%s') is not on the roster and is not asked", node.node_id, node.name)
        return found

    def ask(
        self,
        sites: Iterable[str],
        content: Callable[[str], RecordDict],
        kind: str,
        *,
        deadline: float,
        take: Callable[[str, RecordDict], str | None],
        group: str = "",
    ) -> set[str]:
        """Ask each of these sites; `take` gets an answer, and says why it refuses it. Returns who was taken.

        A site that was restarted or is late to come is asked (again) until the deadline; one whose answer is refused,
        or whose app fails `ATTEMPTS` times, is not.
        """
        end = time.monotonic() + deadline
        waiting, taken = list(sites), set()
        asked: dict[str, Asked] = {}
        failures: dict[str, int] = {}
        while waiting:
            here = self.present()
            for site in waiting:
                if site not in here:
                    continue
                node, since = here[site]
                before = asked.get(site)
                if before is None or before.node != node or before.since != since or not before.ids:
                    left = max(1.0, end - time.monotonic())
                    message = Message(content(site), node, kind, ttl=left, group_id=group)
                    ids = {str(found) for found in self.grid.push_messages([message])}
                    asked[site] = Asked(node, since, ids if before is None else before.ids | ids)
            owner = {given: site for site, about in asked.items() for given in about.ids if site in waiting}
            for reply in self.grid.pull_messages(list(owner)) if owner else []:
                site = owner.get(reply.metadata.reply_to_message_id)
                if site is None or site not in waiting:
                    continue
                asked[site].ids.discard(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    failures[site] = failures.get(site, 0) + (reply.error.code not in GONE)
                    log.warning("site '%s' failed: %s", site, reply.error.reason)
                    if failures[site] >= ATTEMPTS:
                        waiting.remove(site)
                    continue
                refusal = take(site, reply.content)
                waiting.remove(site)
                if refusal is None:
                    taken.add(site)
                else:
                    log.warning("site '%s' refused: %s", site, refusal)
            if waiting and time.monotonic() >= end:
                log.warning("no answer in time from %s", ", ".join(f"'{site}'" for site in waiting))
                break
            if waiting:
                time.sleep(self.poll)
        return taken


def about(content: RecordDict) -> dict[str, Any]:
    """The plain values of a message."""
    return dict(content.config_records["about"]) if "about" in content.config_records else {}
