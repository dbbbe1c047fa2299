"""Secure sums across sites: the phases of `masks` as messages, at the server and at a site."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed import compress
from polyfed.algorithms.contract import Algorithm
from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Sites, about
from polyfed.deploy.protocol.wire import Refused
from polyfed.deploy.secure.masks import WORD, FixedPoint, Member, are_shares, is_public, unmasked
from polyfed.engine.participation import Sampling

log = logging.getLogger("polyfed")
FEWEST = 2
"""A sum of one upload hides nothing."""
MOST_WORDS = 3
"""What a number of an upload takes where weights may be tiny: digits down to 1e-48."""


def check_secure(method: Algorithm, sampling: Sampling) -> None:
    """Refuse what masks do not go with."""
    if sampling.probability is not None or sampling.capacity < FEWEST:
        raise PolyfedError(
            f"federation.secure needs at least {FEWEST} sites in every round, run.participation gives fewer"
        )
    given = getattr(method, "compressor", None)
    if given is not None and compress.make(given).name != "identity":
        raise PolyfedError(
            f"{method.name}: compressed uploads do not go with federation.secure, as masks are as long as the model; "
            "use compressor = 'identity'"
        )


def words_of(method: Algorithm) -> int:
    """The words that each number of an upload takes: more where weights may be tiny, and their products with it."""
    return MOST_WORDS if method.tiny_weights else 1


def majority(parties: int) -> int:
    """The fewest sites whose shares recover a mask: more than half, so that no two such groups are apart."""
    return max(FEWEST, parties // 2 + 1)


@dataclass
class SecureSum:
    """The server's side: it learns who takes part, and the sum."""

    sites: Sites
    deadline: float
    bound: float
    words: int = 1
    """what each number takes, see `FixedPoint`"""

    def gather(
        self,
        run: str,
        number: int,
        cohort: list[str],
        size: int,
        wanted: int,
        content: Callable[[str], RecordDict],
        check: Callable[[str, RecordDict], None],
    ) -> tuple[np.ndarray, list[str]] | None:
        """The sum of the sites' vectors of `size` numbers, and whose are in it; None where fewer than `wanted` are.

        Nothing is unmasked before enough uploads are there: two sums of one round would tell single uploads apart.
        """
        threshold, attempt = majority(len(cohort)), secrets.token_hex(16)
        head = {"run": run, "round": number, "attempt": attempt}
        fixed = FixedPoint(self.bound, len(cohort), self.words)
        first = {**head, "phase": "keys", "threshold": threshold, **asdict(fixed)}
        public = self._ask(cohort, first, lambda _, given: is_public(given))
        if len(public) < threshold:
            return self._too_few("keys", public, threshold)
        second = {**head, "phase": "shares", "public": public}
        sealed = self._ask(list(public), second, lambda site, given: are_shares(given, set(public) - {site}))
        if len(sealed) < threshold:
            return self._too_few("shares", sealed, threshold)
        masked = self._uploads(sealed, head, size * self.words, content, check)
        if len(masked) < max(threshold, wanted):
            return self._too_few("uploads", masked, max(threshold, wanted))
        gone = sorted(set(sealed) - set(masked))
        last = {**head, "phase": "reveal", "there": sorted(masked), "gone": gone}
        revealed = self._ask(
            list(masked),
            last,
            lambda _, given: are_shares(given.get("seed"), masked) and are_shares(given.get("key"), gone),
        )
        if len(revealed) < threshold:
            return self._too_few("shares of masks", revealed, threshold)
        try:
            words = unmasked(masked, sealed, public, revealed.values(), threshold)
            return fixed.decoded(words), [site for site in cohort if site in masked]
        except Refused as refusal:
            log.warning("round %d: %s", number + 1, refusal)
            return None

    def _ask(self, sites: list[str], said: dict[str, Any], fits: Callable[[str, Any], bool]) -> dict[str, Any]:
        """What these sites answer in a phase without uploads; an answer that does not fit is refused."""
        found: dict[str, Any] = {}
        message = RecordDict({"about": ConfigRecord({"secure": json.dumps(said)})})

        def take(site: str, reply: RecordDict) -> str | None:
            given = about(reply)
            if given.get("site") != site or "secure" not in given:
                return str(given.get("error", "it answered nothing"))
            try:
                answer = json.loads(str(given["secure"]))
            except ValueError:
                answer = None
            if not isinstance(answer, dict) or not fits(site, answer):
                return f"its {said['phase']} for the secure sum cannot be read"
            found[site] = answer
            return None

        self.sites.ask(sites, lambda _: message, "query", deadline=self.deadline, take=take)
        return found

    def _uploads(
        self,
        sealed: dict[str, dict[str, str]],
        head: dict[str, Any],
        size: int,
        content: Callable[[str], RecordDict],
        check: Callable[[str, RecordDict], None],
    ) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        none = np.zeros(0, WORD)

        def asked(site: str) -> RecordDict:
            message, others = content(site), {name: given[site] for name, given in sealed.items() if name != site}
            message.config_records["about"]["secure"] = json.dumps({**head, "phase": "upload", "sealed": others})
            return message

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                check(site, reply)
                words = wire.as_arrays(reply.array_records["masked"]).get("words", none) if "masked" in reply else none
                if words.shape != (size,) or words.dtype != WORD:
                    raise Refused(f"masked upload is {words.dtype}{list(words.shape)}, expected {WORD}[{size}]")
                found[site] = words
            except Refused as refusal:
                return str(refusal)
            return None

        self.sites.ask(list(sealed), asked, "train", deadline=self.deadline, take=take, group=str(head["round"] + 1))
        return found

    def _too_few(self, what: str, found: Mapping[str, Any], threshold: int) -> None:
        log.warning("a secure sum got %s of %d sites, at least %d are needed", what, len(found), threshold)


@dataclass
class SecureSite:
    """A site's side: one sum at a time; whom a round was summed up with is kept in a file."""

    name: str
    file: Path
    _member: Member | None = None
    _place: tuple[str, int] = ("", -1)
    _fixed: FixedPoint | None = None

    def answer(self, text: str) -> str:
        """The reply in a phase without uploads."""
        given = json.loads(text)
        phase = given["phase"]
        if phase == "keys":
            return json.dumps(self._begin(given))
        member = self._of(given)
        if phase == "shares":
            return json.dumps(member.shares(given["public"]))
        if phase != "reveal":
            raise Refused(f"a secure sum has no phase '{phase}'")
        summed: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        number, there = summed.get(given["run"], (-1, []))
        if number > given["round"] or (number == given["round"] and there != given["there"]):
            raise Refused(f"round {number + 1} was summed up before, with {', '.join(there)}")
        found = member.reveal(given["there"], given["gone"])
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, json.dumps(summed | {given["run"]: [given["round"], given["there"]]}) + "\n")
        return json.dumps(found)

    def masked(self, text: str, run: str, number: int, vector: np.ndarray) -> np.ndarray:
        """The upload of a round, under its masks."""
        given = json.loads(text)
        member = self._of(given)
        if self._place != (run, number):
            raise Refused("an upload for another round than the secure sum's")
        assert self._fixed is not None
        return member.masked(self._fixed.encoded(vector), given["sealed"])

    def _begin(self, given: dict[str, Any]) -> dict[str, str]:
        parties, threshold = given["parties"], given["threshold"]
        if parties < FEWEST or not majority(parties) <= threshold <= parties:
            raise Refused(f"a secure sum of {parties} sites with threshold {threshold} would hide too little")
        self._member = Member(self.name, given["attempt"], threshold)
        self._place = (given["run"], given["round"])
        self._fixed = FixedPoint(given["bound"], parties, min(given["words"], MOST_WORDS))
        return self._member.public()

    def _of(self, given: dict[str, Any]) -> Member:
        if self._member is None or self._member.attempt != given["attempt"]:
            raise Refused("a secure sum that this site has no part in")
        return self._member
