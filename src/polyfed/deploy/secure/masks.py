"""Masks that cancel in a sum: the protocol of Bonawitz et al. 2017 (Fig. 4), for servers that follow it.

Every two sites share a mask that one adds and the other subtracts, and every site adds a mask of its own. The masks of
sites that drop out, and the own masks of the others, are recovered from shares that `threshold` sites give. Of any site
they give shares of one kind only, so that a late upload stays hidden. The primitives are those of audited libraries:
key agreement, key derivation, encryption and the masks' ChaCha20 by `cryptography`, and secret sharing by PyCryptodome.
(Flower's own masks come from a generator with a seed of 32 bits, and a server can try out all of those.)

Masks are bound to the sum and to its roster: the key of a pair's mask follows from the keys of all members. Every site
commits to its secrets and to each share of them, so that a share that was changed names who changed it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.fixed_point import WORD
from polyfed.deploy.secure.primitives import (
    agreed,
    combined,
    key_of,
    new_key,
    opened,
    public_text,
    read_public,
    sealed,
    secret_of,
    split,
)

PublicKeys = dict[str, str]
"""A site's two public keys: "mask", from which masks follow, and "seal", under which its shares travel; and, where the
site has a key of its own, its "signature" of both."""
Shares = dict[str, str]
"""Shares of secrets, by the site whose secret it is or by the kind of secret."""

Commitments = dict[str, str]
"""Digests of a site's secrets and of every share of them, by kind and holder: "seed", "seed:NAME", "key:NAME"."""


KINDS = ("seed", "key")
"""The secrets of a site that others hold shares of: of its own mask, and of its key."""


class Culprit(Refused):
    """What is wrong, and whose doing it is."""

    def __init__(self, site: str, why: str) -> None:
        super().__init__(why)
        self.site = site


@dataclass
class SumMember:
    """A site in one secure sum: its keys are made for this sum, and forgotten after it."""

    name: str
    attempt: str
    threshold: int
    _mask_key: EllipticCurvePrivateKey = field(default_factory=new_key)
    _seal_key: EllipticCurvePrivateKey = field(default_factory=new_key)
    _seed: bytes = b""
    """of this site's own mask"""
    _public: dict[str, PublicKeys] = field(default_factory=dict)
    _held: dict[str, Shares] = field(default_factory=dict)
    """per site: the shares of its seed and key that this site holds"""
    _commitments: Commitments = field(default_factory=dict)
    _revealed: bool = False

    def public_keys(self) -> PublicKeys:
        """Phase 0: the public keys of this site."""
        return {"mask": public_text(self._mask_key), "seal": public_text(self._seal_key)}

    def shares(self, public: Mapping[str, PublicKeys]) -> dict[str, str]:
        """Phase 1: for each other site, sealed for it, its shares of this site's own mask and of its key."""
        keys = [key for both in public.values() for key in both.values()]
        mine = public.get(self.name, {})
        if len(public) < self.threshold:
            raise Refused(f"{len(public)} sites are too few for a secure sum, expected {self.threshold}")
        if len(set(keys)) < len(keys) or mine.get("mask") != public_text(self._mask_key):
            raise Refused("the keys of a secure sum are not those that sites gave")
        if self._public:
            raise Refused("the keys of a secure sum were given before")
        self._public, self._seed = dict(public), os.urandom(32)
        names = sorted(public)
        seeds = split(self._seed, self.threshold, len(names))
        secrets = split(secret_of(self._mask_key), self.threshold, len(names))
        letters = {}
        self._commitments = {"seed": self._committed(self.name, "seed", self._seed.hex())}
        for name, seed, secret in zip(names, seeds, secrets, strict=True):
            pair = {"seed": seed.hex(), "key": secret.hex()}
            for kind, share in pair.items():
                self._commitments[f"{kind}:{name}"] = self._committed(self.name, f"{kind}:{name}", share)
            if name == self.name:
                self._held[name] = pair
                continue
            text = json.dumps({"from": self.name, "to": name, "attempt": self.attempt, **pair})
            letters[name] = sealed(self._seal_shared_with(name), text)
        return letters

    def commitments(self) -> Commitments:
        """Phase 1, beside the shares: digests of them."""
        return self._commitments

    def _committed(self, owner: str, what: str, secret: str) -> str:
        return committed(self.attempt, owner, what, secret)

    def masked(
        self, words: np.ndarray, letters: Mapping[str, str], commitments: Mapping[str, Commitments]
    ) -> np.ndarray:
        """Phase 2: the upload under this site's own mask and those it shares with the senders of sealed shares."""
        if len(letters) + 1 < self.threshold:
            raise Refused(f"{len(letters) + 1} sites are too few for a secure sum, expected {self.threshold}")
        if len(self._held) != 1:
            raise Refused("a secure sum has one upload of a site")
        for name, text in letters.items():
            try:
                found = json.loads(opened(self._seal_shared_with(name), text))
                address, pair = (found["from"], found["to"], found["attempt"]), {k: str(found[k]) for k in KINDS}
            except (InvalidToken, ValueError, KeyError, TypeError):
                raise Culprit(name, f"the shares of site '{name}' cannot be opened") from None
            if address != (name, self.name, self.attempt):
                raise Culprit(name, f"shares of site '{name}' are not meant for this site or this sum")
            for kind, share in pair.items():
                what = f"{kind}:{self.name}"
                if self._committed(name, what, share) != commitments.get(name, {}).get(what):
                    raise Culprit(name, f"the shares of site '{name}' are not those that it committed to")
            self._held[name] = pair
        total = words + key_stream(self._seed, words.size)
        for name in letters:
            public = self._public[name]["mask"]
            total = total + pair_mask(self._mask_key, self.name, name, public, words.size, self._binding)
        return total

    def reveal(self, there: Iterable[str], gone: Iterable[str]) -> dict[str, Shares]:
        """Phase 3: shares of the own masks of those whose upload came, and of the keys of those who dropped out."""
        there, gone = set(there), set(gone)
        if self._revealed or there & gone or not there | gone <= set(self._held) or self.name not in there:
            raise Refused("shares are given once, and of each site of one kind only")
        if len(there) < self.threshold:
            raise Refused(f"{len(there)} uploads are too few for a secure sum, expected {self.threshold}")
        self._revealed = True
        return {
            "seed": {name: self._held[name]["seed"] for name in sorted(there)},
            "key": {name: self._held[name]["key"] for name in sorted(gone)},
        }

    @property
    def _binding(self) -> bytes:
        return binding(self.attempt, self._public)

    def _seal_shared_with(self, name: str) -> bytes:
        """The key under which this site and another send each other shares."""
        if name not in self._public:
            raise Refused(f"site '{name}' gave no keys for this secure sum")
        return agreed(self._seal_key, read_public(self._public[name]["seal"]))


def unmasked(
    masked: Mapping[str, np.ndarray],
    sharers: Sequence[str],
    public: Mapping[str, PublicKeys],
    revealed: Mapping[str, Mapping[str, Shares]],
    threshold: int,
    attempt: str,
    commitments: Mapping[str, Commitments],
) -> np.ndarray:
    """The sum of the uploads that came, in words; `sharers` are the sites whose masks are in them.

    `revealed` are the shares that each site gave. One that is not what its owner committed to is left out; it names its
    holder, by `changed_shares`. The sum needs `threshold` good ones of each secret.
    """
    bad, bound = changed_shares(revealed, attempt, commitments), binding(attempt, public)
    shares: dict[str, dict[str, list[str]]] = {"seed": {}, "key": {}}
    for holder, answer in revealed.items():
        for kind, by_site in shares.items() if holder not in bad else ():
            for name, share in answer[kind].items():
                by_site.setdefault(name, []).append(share)
    total = reduce(np.add, masked.values())
    for name in masked:
        seed = _combined(shares["seed"].get(name, []), threshold, name)
        if committed(attempt, name, "seed", seed.hex()) != commitments[name].get("seed"):
            raise Culprit(name, f"the shares of site '{name}' do not give the mask that it committed to")
        total = total - key_stream(seed, total.size)
    for name in set(sharers) - set(masked):
        key = _private_key(_combined(shares["key"].get(name, []), threshold, name), name)
        if public_text(key) != public[name]["mask"]:
            raise Culprit(name, f"the shares of site '{name}' do not give its key")
        for other in masked:  # what `other` added for `name` is what `name` would have taken off
            total = total + pair_mask(key, name, other, public[other]["mask"], total.size, bound)
    return total


def changed_shares(
    revealed: Mapping[str, Mapping[str, Shares]], attempt: str, commitments: Mapping[str, Commitments]
) -> set[str]:
    """The sites that gave a share that is not the one that its owner committed to."""
    return {
        holder
        for holder, answer in revealed.items()
        for kind, by_site in answer.items()
        for owner, share in by_site.items()
        if committed(attempt, owner, f"{kind}:{holder}", share) != commitments[owner].get(f"{kind}:{holder}")
    }


def committed(attempt: str, owner: str, what: str, secret: str) -> str:
    """A digest that fixes a secret without telling it: secrets are random, and too many to try."""
    return hashlib.sha256(json.dumps([attempt, owner, what, secret]).encode()).hexdigest()


def binding(attempt: str, public: Mapping[str, PublicKeys]) -> bytes:
    """What masks are bound to: the sum, and who takes part in it with which keys."""
    return hashlib.sha256(
        json.dumps([attempt, sorted((name, sorted(keys.items())) for name, keys in public.items())]).encode()
    ).digest()


def pair_mask(key: EllipticCurvePrivateKey, mine: str, other: str, public: str, size: int, bound: bytes) -> np.ndarray:
    """The mask of two sites as the first of them adds it: the two add up to zero, in the sum that they are bound to."""
    shared = agreed(key, read_public(public))
    mask = key_stream(hmac.digest(shared, b"polyfed pair mask" + bound, "sha256"), size)
    return mask if mine > other else np.zeros_like(mask) - mask


def key_stream(key: bytes, size: int) -> np.ndarray:
    """`size` words of ChaCha20's key stream; a key serves once."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(WORD.itemsize * size)), WORD)


def is_public_key(text: str) -> bool:
    try:
        read_public(text)
    except ValueError:
        return False
    return True


def _combined(shares: list[str], threshold: int, name: str) -> bytes:
    """The secret of a site, from shares of it."""
    if len(shares) < threshold:
        raise Refused(f"{len(shares)} shares of site '{name}', expected {threshold}")
    try:
        return combined([bytes.fromhex(share) for share in shares[:threshold]])
    except ValueError as error:
        raise Culprit(name, f"the shares of site '{name}' do not fit together: {error}") from None


def _private_key(secret: bytes, name: str) -> EllipticCurvePrivateKey:
    try:
        return key_of(secret)
    except ValueError:
        raise Culprit(name, f"the shares of site '{name}' do not give its key") from None
