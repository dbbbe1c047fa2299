"""The server's side of secure sums: which runs they go with, and the four phases of a sum."""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sized
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.bonds import BondedMethod
from polyfed.algorithms.shared.compressed import CompressedMethod
from polyfed.core.errors import PolyfedError
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import MessageFor, SiteMessenger
from polyfed.deploy.protocol.plain_values import Refused, json_object, plain_values, refusal_in
from polyfed.deploy.secure.fixed_point import WORD, FixedPoint
from polyfed.deploy.secure.masks import Commitments, Culprit, Shares, changed_shares, unmasked
from polyfed.deploy.secure.phases import (
    FEWEST_SITES,
    MOST_WORDS,
    SumHead,
    majority,
    read_before,
    read_public_keys,
    read_revealed,
    read_shares,
)
from polyfed.engine.participation import Sampling

log = logging.getLogger("polyfed")
Answer = TypeVar("Answer")


def check_secure(method: Algorithm, sampling: Sampling) -> None:
    """Refuse methods and samplings that masks do not go with."""
    if sampling.probability is not None or sampling.capacity < FEWEST_SITES:
        raise PolyfedError(
            f"federation.secure needs at least {FEWEST_SITES} sites in every round, run.participation gives fewer"
        )
    if isinstance(method, CompressedMethod) and method.made_compressor.name != "identity":
        raise PolyfedError(
            f"{method.name}: compressed uploads do not go with federation.secure, as masks are as long as the model; "
            "use compressor = 'identity'"
        )


def words_of(method: Algorithm) -> int:
    """The words that each number of an upload takes: more where weights, and products with them, may be tiny."""
    tiny = isinstance(method, BondedMethod) and method.weighting == "multiplier"
    return MOST_WORDS if tiny else 1


@dataclass
class SecureSumServer:
    """The server learns who takes part, and the sum."""

    sites: SiteMessenger
    deadline: float
    bound: float
    words: int = 1
    """the words of each number, see `FixedPoint`"""
    culprits: set[str] = field(default_factory=set)
    """sites that gave wrong shares: they are not asked again in this round"""
    _only: frozenset[str] | None = None
    """the sites with which this round was summed up before, by a server that did not come to keep the sum"""

    def gather(
        self,
        run: str,
        number: int,
        cohort: list[str],
        size: int,
        wanted: int,
        content: MessageFor,
        check: Callable[[str, RecordDict], None],
    ) -> tuple[np.ndarray, list[str]] | None:
        """The sum of the sites' vectors of `size` numbers, and whose are in it; None if fewer than `wanted` are.

        Nothing is unmasked before enough uploads have come: two sums of one round would tell single uploads apart.
        """
        roster, cohort = self.sites.roster, [site for site in cohort if site not in self.culprits]
        cohort = [site for site in cohort if self._only is None or site in self._only]
        threshold = majority(len(cohort))
        head: SumHead = {"run": run, "round": number, "attempt": secrets.token_hex(16)}
        fixed_point = FixedPoint(self.bound, len(cohort), self.words)
        first = {**head, "phase": "keys", "threshold": threshold, "roster": roster, **asdict(fixed_point)}
        public = self._ask(cohort, first, lambda _, answer: read_public_keys(answer))
        if len(public) < threshold:
            return self._too_few("keys", public, threshold)
        second = {**head, "phase": "shares", "public": public}
        shared = self._ask(list(public), second, lambda site, answer: read_shares(answer, site, public))
        if len(shared) < threshold:
            return self._too_few("shares", shared, threshold)
        sealed = {site: given for site, (given, _) in shared.items()}
        commitments = {site: made for site, (_, made) in shared.items()}
        masked = self._uploads(sealed, commitments, head, size * self.words, content, check)
        if len(masked) < max(threshold, wanted):
            return self._too_few("uploads", masked, max(threshold, wanted))
        gone = sorted(set(sealed) - set(masked))
        last = {**head, "phase": "reveal", "there": sorted(masked), "gone": gone}
        claims: dict[str, frozenset[str]] = {}

        def read(site: str, answer: Mapping[str, object]) -> dict[str, Shares] | None:
            before = read_before(answer)
            if before is None:
                return read_revealed(answer, masked, gone)
            if before <= set(cohort):
                claims[site] = before
            raise Refused(f"round {number + 1} was summed up before, with {', '.join(sorted(before))}")

        revealed = self._ask(list(masked), last, read)
        if len(revealed) < threshold:
            self._only = _most_claimed(claims)
            return self._too_few("shares of masks", revealed, threshold)
        for site in sorted(changed_shares(revealed, head["attempt"], commitments)):
            self._blame(site, f"round {number + 1}: a share that it was given to keep is not the one that it gave back")
        try:
            words = unmasked(masked, list(sealed), public, revealed, threshold, head["attempt"], commitments)
            return fixed_point.decoded(words), [site for site in cohort if site in masked]
        except Culprit as culprit:
            self._blame(culprit.site, f"round {number + 1}: {culprit}")
        except Refused as refusal:
            log.warning("round %d: %s", number + 1, refusal)
        return None

    def _blame(self, site: str, why: str) -> None:
        self.culprits.add(site)
        self.sites.note_refusal(site)
        log.warning("site '%s' refused: %s", site, why)

    def _ask(
        self,
        sites: list[str],
        request: Mapping[str, object],
        read: Callable[[str, Mapping[str, object]], Answer | None],
    ) -> dict[str, Answer]:
        """The sites' answers in a phase without uploads. An answer that `read` cannot read is refused."""
        answers: dict[str, Answer] = {}
        message = RecordDict({"about": ConfigRecord({"secure": json.dumps(request)})})

        def take(site: str, reply: RecordDict) -> str | None:
            values = plain_values(reply)
            why = refusal_in(values)
            if why is not None or values.get("site") != site or "secure" not in values:
                return why or "it answered nothing"
            answer = read(site, json_object(values, "secure"))
            if answer is None:
                return f"its {request['phase']} for the secure sum cannot be read"
            answers[site] = answer
            return None

        self.sites.ask(sites, lambda _: message, "query", deadline=self.deadline, take=take)
        return answers

    def _uploads(
        self,
        sealed: Mapping[str, Mapping[str, str]],
        commitments: Mapping[str, Commitments],
        head: SumHead,
        size: int,
        content: MessageFor,
        check: Callable[[str, RecordDict], None],
    ) -> dict[str, np.ndarray]:
        """The masked uploads that came, of `size` words each."""
        uploads: dict[str, np.ndarray] = {}
        none = np.zeros(0, WORD)

        def message_for(site: str) -> RecordDict:
            message, others = content(site), {name: given[site] for name, given in sealed.items() if name != site}
            made = {
                name: {kind: given[kind] for kind in (f"seed:{site}", f"key:{site}")}
                for name, given in commitments.items()
            }
            last = {**head, "phase": "upload", "sealed": others, "commitments": made}
            message.config_records["about"]["secure"] = json.dumps(last)
            return message

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                check(site, reply)
                words = wire.as_arrays(reply.array_records["masked"]).get("words", none) if "masked" in reply else none
                if words.shape != (size,) or words.dtype != WORD:
                    raise Refused(f"masked upload is {words.dtype}{list(words.shape)}, expected {WORD}[{size}]")
                uploads[site] = words
            except Refused as refusal:
                return str(refusal)
            return None

        self.sites.ask(list(sealed), message_for, "train", deadline=self.deadline, take=take)
        return uploads

    def _too_few(self, what: str, answers: Sized, threshold: int) -> None:
        log.warning("a secure sum got %s of %d sites, at least %d are needed", what, len(answers), threshold)


def _most_claimed(claims: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    """The earlier sum that most sites tell of, if two or more do: one alone cannot decide who is in a sum."""
    told = Counter(claims.values())
    return next((before for before, times in told.most_common(1) if times >= FEWEST_SITES), None)
