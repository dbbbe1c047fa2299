"""The phases of a secure sum as messages: what is asked in each, and what an answer must look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict, TypeGuard

from polyfed.deploy.protocol.names import is_name
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.masks import Commitments, PublicKeys, Shares, is_public_key

FEWEST_SITES = 2
"""A sum of one upload hides nothing."""
LONGEST_SIGNATURE = 1000
"""The most letters of a signature of mask keys."""
MOST_WORDS = 3
"""The words of a number where weights may be tiny: they carry digits down to 1e-48."""


class SumHead(TypedDict):
    """Which sum a message is about; `attempt` names it, as a round may be tried again."""

    run: str
    round: int
    attempt: str


def majority(parties: int) -> int:
    """The fewest sites whose shares recover a mask: more than half, so that any two such groups overlap."""
    return max(FEWEST_SITES, parties // 2 + 1)


def read_public_keys(answer: object) -> PublicKeys | None:
    """A site's public keys; None if this is something else."""
    keys = read_texts(answer, ("mask", "seal")) or read_texts(answer, ("mask", "seal", "signature"))
    if keys is None or len(keys.get("signature", "")) > LONGEST_SIGNATURE:
        return None
    return keys if is_public_key(keys["mask"]) and is_public_key(keys["seal"]) else None


def read_before(answer: Mapping[str, object]) -> frozenset[str] | None:
    """The sites with which the answering one gave its shares for this round before; None if it does not say so."""
    before = answer.get("before")
    if set(answer) != {"before"} or not isinstance(before, list) or not all(map(is_name, before)):
        return None
    return frozenset(before)


def read_names(request: Mapping[str, object], name: str) -> list[str]:
    """A list of different sites."""
    given = request.get(name)
    if not isinstance(given, list) or not all(map(is_name, given)) or len(set(given)) < len(given):
        raise Refused(f"{name} must be different sites")
    return given


def is_texts(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def read_texts(answer: object, names: Iterable[str]) -> dict[str, str] | None:
    """A text under each of these names and no other; None if this is something else."""
    if not isinstance(answer, dict) or set(answer) != set(names):
        return None
    texts = {str(name): text for name, text in answer.items() if isinstance(text, str)}
    return texts if len(texts) == len(answer) else None


def read_shares(
    answer: Mapping[str, object], site: str, members: Iterable[str]
) -> tuple[dict[str, str], Commitments] | None:
    """A site's sealed shares for each other one, and its commitments; None if this is something else."""
    names = list(members)
    sealed = read_texts(answer.get("sealed"), set(names) - {site})
    wanted = ["seed", *(f"{kind}:{name}" for name in names for kind in ("seed", "key"))]
    commitments = read_texts(answer.get("commitments"), wanted)
    return None if sealed is None or commitments is None else (sealed, commitments)


def read_revealed(answer: Mapping[str, object], there: Iterable[str], gone: Iterable[str]) -> dict[str, Shares] | None:
    """The shares of exactly these sites' masks and keys; None if this is something else."""
    seeds, keys = read_texts(answer.get("seed"), there), read_texts(answer.get("key"), gone)
    return None if seeds is None or keys is None else {"seed": seeds, "key": keys}
