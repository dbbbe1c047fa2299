"""Stages around uploads: what is done to an upload before it leaves a site, and to the sum before the server reads it.

Clipping and noise, masks of secure aggregation and the like are stages. Both sides apply them in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfed.engine.round.records import Contribution, Sums


@dataclass(frozen=True)
class Moment:
    """Where in a run a stage is at work; `sites` are those that were asked, in the order of the roster."""

    run: str
    round: int
    seed: int
    sites: tuple[str, ...]
    site: str | None = None
    """whose upload it is; None at the server"""


class Stage:
    """Does nothing on either side; a stage overrides what it needs. An upload that passes one travels as numbers."""

    name: str = "nothing"

    def upload(self, sent: Contribution, moment: Moment) -> Contribution:
        """What leaves the site in place of `sent`: the same arrays in shape and type."""
        return sent

    def total(self, sums: Sums, moment: Moment) -> Sums:
        """What the server's step reads in place of the sum of the uploads that arrived."""
        return sums


STAGES: dict[str, type[Stage]] = {}
"""Stages by the name that a run's terms give them."""
