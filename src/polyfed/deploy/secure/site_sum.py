"""A site's side of secure sums."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyfed.core.files import write_text
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.fixed_point import FixedPoint
from polyfed.deploy.secure.masks import PublicKeys, SumMember
from polyfed.deploy.secure.phases import FEWEST_SITES, MOST_WORDS, KeysRequest, SumHead, majority


@dataclass(frozen=True)
class CurrentSum:
    """The sum that a site takes part in now."""

    member: SumMember
    run: str
    round: int
    fixed_point: FixedPoint


@dataclass
class SecureSumSite:
    """One sum at a time. With which other sites a round was summed up is kept in a file."""

    name: str
    file: Path
    _current: CurrentSum | None = None

    def answer(self, text: str) -> str:
        """The reply in a phase without uploads."""
        request = json.loads(text)
        phase = request["phase"]
        if phase == "keys":
            return json.dumps(self._begin(request))
        member = self._current_sum(request).member
        if phase == "shares":
            return json.dumps(member.shares(request["public"]))
        if phase != "reveal":
            raise Refused(f"a secure sum has no phase '{phase}'")
        summed: dict[str, tuple[int, list[str]]] = json.loads(self.file.read_text()) if self.file.exists() else {}
        number, there = summed.get(request["run"], (-1, []))
        if number > request["round"] or (number == request["round"] and there != request["there"]):
            raise Refused(f"round {number + 1} was summed up before, with {', '.join(there)}")
        shares = member.reveal(request["there"], request["gone"])
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, json.dumps(summed | {request["run"]: [request["round"], request["there"]]}) + "\n")
        return json.dumps(shares)

    def masked(self, text: str, run: str, number: int, vector: np.ndarray) -> np.ndarray:
        """The upload of a round, under its masks."""
        request = json.loads(text)
        current = self._current_sum(request)
        if (current.run, current.round) != (run, number):
            raise Refused("an upload for another round than the secure sum's")
        return current.member.masked(current.fixed_point.encoded(vector), request["sealed"])

    def _begin(self, request: KeysRequest) -> PublicKeys:
        parties, threshold = request["parties"], request["threshold"]
        if parties < FEWEST_SITES or not majority(parties) <= threshold <= parties:
            raise Refused(f"a secure sum of {parties} sites with threshold {threshold} would hide too little")
        member = SumMember(self.name, request["attempt"], threshold)
        fixed_point = FixedPoint(request["bound"], parties, min(request["words"], MOST_WORDS))
        self._current = CurrentSum(member, request["run"], request["round"], fixed_point)
        return member.public_keys()

    def _current_sum(self, request: SumHead) -> CurrentSum:
        if self._current is None or self._current.member.attempt != request["attempt"]:
            raise Refused("a secure sum that this site has no part in")
        return self._current
