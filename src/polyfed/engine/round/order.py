"""The order of a round, wherever its clients are: on the devices, outside them, or at sites of their own."""

from __future__ import annotations

from typing import Protocol, TypeVar

Cohort = TypeVar("Cohort")
Worked = TypeVar("Worked")
Updated = TypeVar("Updated")
Closed = TypeVar("Closed", covariant=True)


class RoundParts(Protocol[Cohort, Worked, Updated, Closed]):
    """What a round is made of. The simulator has these parts twice, and a deployed server once."""

    @property
    def absorbs(self) -> bool:
        """Whether participants take in the new server's broadcast."""
        ...

    def cohort(self) -> Cohort:
        """Who takes part: by the seed and the round's number."""
        ...

    def local(self, cohort: Cohort, /) -> Worked:
        """The broadcast, the local work of every participant, and the sum of the uploads that are finite."""
        ...

    def update(self, cohort: Cohort, worked: Worked, /) -> Updated:
        """The server's step, from that sum."""
        ...

    def absorb(self, cohort: Cohort, updated: Updated, /) -> Updated:
        """The new broadcast, for the participants whose uploads were counted."""
        ...

    def close(self, cohort: Cohort, updated: Updated, /) -> Closed:
        """States go back to where they are kept, and what happened is counted."""
        ...


def in_order(parts: RoundParts[Cohort, Worked, Updated, Closed]) -> Closed:
    """One round."""
    cohort = parts.cohort()
    worked = parts.local(cohort)
    updated = parts.update(cohort, worked)
    if parts.absorbs:
        updated = parts.absorb(cohort, updated)
    return parts.close(cohort, updated)
