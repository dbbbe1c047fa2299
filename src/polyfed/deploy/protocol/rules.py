"""The rules by which a server runs a federation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FederationRules:
    """How long the server waits, and for whom; part of the section [federation] of its config."""

    deadline: float = 600.0
    """seconds that a round waits for answers"""
    minimum: int | None = None
    """the fewest uploads that a round needs; by default all that were asked"""
    patience: int = 3
    """how many deadlines a round below the minimum may take before the run stops"""
    gather: float = 600.0
    """seconds that the start waits for every site"""
    poll: float = 0.2
    """seconds between looks for answers"""
    largest: float = 4e9
    """the most bytes of one answer"""
    rows: int = 10**9
    """the most rows that a site may declare"""
    classes: int = 10**4
    """the most classes that a site may declare"""
    norm: float | None = None
    """the longest upload, before it is weighted; by default there is no fixed bound"""
    outlier: float = 1000.0
    """an upload that is so many times as long as the usual one is refused"""
    secure: bool = False
    """masks on the uploads, so that the server learns their sum alone"""
    bound: float = 1e6
    """with `secure`: the largest number that an upload may have, weight included"""
