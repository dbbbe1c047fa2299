"""A site's side of secure sums."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, write_text
from polyfed.deploy.protocol.plain_values import Refused, json_object, whole_number
from polyfed.deploy.secure.fixed_point import FixedPoint
from polyfed.deploy.secure.masks import PublicKeys, Shares, SumMember
from polyfed.deploy.secure.phases import (
    FEWEST_SITES,
    MOST_WORDS,
    is_texts,
    majority,
    read_names,
    read_public_keys,
)
from polyfed.deploy.secure.signed_keys import KnownSites


@dataclass
class CurrentSum:
    """The sum that a site takes part in now."""

    member: SumMember
    run: str
    round: int
    fixed_point: FixedPoint
    roster: tuple[str, ...]
    what: str = ""
    """a digest of what is summed up: the terms without the run's name, and the round"""


@dataclass
class SecureSumSite:
    """One sum at a time. With which other sites something was summed up is kept in a file, over all runs.

    Two sums of the same uploads over different sites differ by single uploads. So a round's upload is summed up with
    the same sites only, in whichever run it is asked for.
    """

    name: str
    file: Path
    fewest: int = FEWEST_SITES
    """the fewest sites in a sum, by this site's policy"""
    known: KnownSites = field(default_factory=KnownSites)
    """whose mask keys it believes"""
    _current: CurrentSum | None = None

    def answer(self, text: str) -> str:
        """The reply in a phase without uploads."""
        request = _read(text)
        phase = request.get("phase")
        if phase == "keys":
            return json.dumps(self._begin(request))
        current = self._current_sum(request)
        if phase == "shares":
            public = request.get("public")
            if not isinstance(public, dict) or not set(public) <= set(current.roster):
                raise Refused("the keys of a secure sum are not of the run's sites")
            if any(read_public_keys(keys) is None for keys in public.values()):
                raise Refused("the keys of a secure sum cannot be read")
            self._refuse_few(len(public))
            self.known.refuse_forged(current.member.attempt, self.name, public)
            return json.dumps({"sealed": current.member.shares(public), "commitments": current.member.commitments()})
        if phase != "reveal":
            raise Refused("a secure sum has no such phase")
        return json.dumps(self._reveal(current, read_names(request, "there"), read_names(request, "gone")))

    def _reveal(
        self, current: CurrentSum, there: list[str], gone: list[str]
    ) -> dict[str, Shares] | dict[str, list[str]]:
        """Shares for the sum; or, where this round was summed up with other sites before, which those were."""
        self._refuse_few(len(there))
        summed = self._summed()
        before = summed.get(current.what, sorted(there))
        if before != sorted(there):
            return {"before": before}
        shares = current.member.reveal(there, gone)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, json.dumps(summed | {current.what: sorted(there)}) + "\n")
        return shares

    def _summed(self) -> dict[str, list[str]]:
        """With whom what was summed up. A file that is damaged is not taken for none."""
        try:
            given = json.loads(self.file.read_text()) if self.file.exists() else {}
        except ValueError as error:
            raise PolyfedError(f"{self.file}: cannot be read: {error}; its backup has whose sums were given") from None
        if not isinstance(given, dict):
            raise PolyfedError(f"{self.file}: no list of sums; its backup has whose sums were given")
        return given

    def masked(self, text: str, run: str, number: int, what: str, vector: np.ndarray) -> np.ndarray:
        """The upload of a round, under its masks; `what` says what it was computed from."""
        request = _read(text)
        current = self._current_sum(request)
        if (current.run, current.round) != (run, number):
            raise Refused("an upload for another round than the secure sum's")
        sealed, commitments = request.get("sealed"), request.get("commitments")
        if not is_texts(sealed) or not isinstance(commitments, dict) or not all(map(is_texts, commitments.values())):
            raise Refused("the shares of a secure sum cannot be read")
        self._refuse_few(len(sealed) + 1)
        current.what = what
        return current.member.masked(current.fixed_point.encoded(vector), sealed, commitments)

    def _begin(self, request: JsonObject) -> PublicKeys:
        parties, threshold, words = (_whole(request, name) for name in ("parties", "threshold", "words"))
        bound, number = request.get("bound"), _whole(request, "round", least=0)
        if parties < FEWEST_SITES or not majority(parties) <= threshold <= parties:
            raise Refused(f"a secure sum of {parties} sites with threshold {threshold} would hide too little")
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 < bound < 1e300:
            raise Refused("the bound of a secure sum must be a number above 0")
        self._refuse_few(parties)
        roster = read_names(request, "roster")
        if self.name not in roster or not parties <= len(roster):
            raise Refused("a secure sum of a roster without this site")
        run, attempt = request.get("run"), request.get("attempt")
        if not isinstance(run, str) or not isinstance(attempt, str) or len(attempt) > 200:
            raise Refused("a secure sum without a name")
        member = SumMember(self.name, attempt, threshold)
        fixed_point = FixedPoint(bound, parties, min(words, MOST_WORDS))
        self._current = CurrentSum(member, run, number, fixed_point, tuple(roster))
        return self.known.signed(attempt, self.name, member.public_keys())

    def of_roster(self, roster: tuple[str, ...]) -> bool:
        """Whether the sum under way is of this roster."""
        return self._current is not None and sorted(self._current.roster) == sorted(roster)

    def _refuse_few(self, sites: int) -> None:
        if sites < self.fewest:
            raise Refused(f"its policy allows sums of at least {self.fewest} sites, this one has {sites}")

    def _current_sum(self, request: JsonObject) -> CurrentSum:
        if self._current is None or self._current.member.attempt != request.get("attempt"):
            raise Refused("a secure sum that this site has no part in")
        return self._current


def _read(text: str) -> JsonObject:
    return json_object({"secure": text}, "secure")


def _whole(request: JsonObject, name: str, least: int = 1) -> int:
    return whole_number(request, name, least)
