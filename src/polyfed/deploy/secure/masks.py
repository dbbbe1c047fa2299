"""A sum whose terms nobody sees: the protocol of Bonawitz et al. 2017 (Fig. 4), for servers that follow it.

Every two sites share a mask that one adds and the other subtracts, and every site adds one of its own. Masks of sites
that drop out, and the own ones of the others, are recovered from shares that `threshold` sites give; of any site they
give shares of one kind only, so that a late upload stays hidden. The primitives are those of audited libraries: key
agreement, key derivation and encryption by `cryptography` and secret sharing by PyCryptodome, as Flower calls them, and
masks by ChaCha20 of `cryptography`. (Flower's own masks come from a generator with a seed of 32 bits, which a server
can try out.)
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import ceil, log2
from typing import Any

import numpy as np
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from polyfed.deploy.protocol.wire import Refused

WORD = np.dtype("<u8")
"""What travels of each number: sums are modulo 2^64."""
Shares = dict[str, str]


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers up to `bound` as whole ones, so that the sum of `parties` of them fits into 63 bits.

    A number takes `words` of them: the second is of what the first rounds off, and so on.
    """

    bound: float
    parties: int
    words: int = 1

    @property
    def scale(self) -> float:
        return 2.0 ** (62 - ceil(log2(self.parties * self.bound)))

    @property
    def finer(self) -> float:
        """How much finer each word is than the one before; what that rounds off is half of it at most."""
        return 2.0 ** (62 - ceil(log2(self.parties)))

    @property
    def error(self) -> float:
        """The most that a number of the sum is off."""
        return self.parties * 0.5 / self.scale / self.finer ** (self.words - 1)

    def encoded(self, vector: np.ndarray) -> np.ndarray:
        if not np.isfinite(vector).all():
            raise Refused("its update is not finite")
        largest = float(np.max(np.abs(vector), initial=0.0))
        if largest > self.bound:
            raise Refused(f"a number of its upload is {largest:g}, beyond federation.bound = {self.bound:g}")
        rest, parts = vector * self.scale, []
        for _ in range(self.words):
            whole = np.rint(rest)
            rest = (rest - whole) * self.finer
            parts.append(whole.astype(np.int64).astype(WORD))
        return np.concatenate(parts)

    def decoded(self, words: np.ndarray) -> np.ndarray:
        """The sum; one that its terms cannot have is refused."""
        parts = words.astype(np.int64).reshape(self.words, -1)
        found = np.sum([part / self.finer**place for place, part in enumerate(parts)], axis=0) / self.scale
        if np.max(np.abs(found), initial=0.0) > self.parties * self.bound + self.error:
            raise Refused("the sum is beyond what its uploads can add up to")
        return found


@dataclass
class Member:
    """A site in one secure sum: its keys are made for this sum, and forgotten after it."""

    name: str
    attempt: str
    threshold: int
    _mask_key: Any = None
    _seal_key: Any = None
    _seed: bytes = b""
    _public: dict[str, dict[str, str]] = field(default_factory=dict)
    _held: dict[str, Shares] = field(default_factory=dict)
    _revealed: bool = False

    def public(self) -> dict[str, str]:
        """Phase 0: the public keys of this site."""
        self._mask_key, mask = generate_key_pairs()
        self._seal_key, seal = generate_key_pairs()
        return {"mask": public_key_to_bytes(mask).decode(), "seal": public_key_to_bytes(seal).decode()}

    def shares(self, public: dict[str, dict[str, str]]) -> dict[str, str]:
        """Phase 1: for each other site, sealed for it, its shares of this site's own mask and of its key."""
        keys = [key for both in public.values() for key in both.values()]
        mine = public.get(self.name, {})
        if len(public) < self.threshold:
            raise Refused(f"{len(public)} sites are too few for a secure sum, expected {self.threshold}")
        if len(set(keys)) < len(keys) or mine.get("mask") != _public_of(self._mask_key):
            raise Refused("the keys of a secure sum are not those that sites gave")
        if self._public:
            raise Refused("the keys of a secure sum were given before")
        self._public, self._seed = dict(public), os.urandom(32)
        names = sorted(public)
        seeds = create_shares(self._seed, self.threshold, len(names))
        secrets = create_shares(private_key_to_bytes(self._mask_key), self.threshold, len(names))
        sent = {}
        for name, seed, secret in zip(names, seeds, secrets, strict=True):
            pair = {"seed": seed.hex(), "key": secret.hex()}
            if name == self.name:
                self._held[name] = pair
                continue
            text = json.dumps({"from": self.name, "to": name, "attempt": self.attempt, **pair})
            sent[name] = encrypt(self._sealed_with(name), text.encode()).decode()
        return sent

    def masked(self, words: np.ndarray, sealed: Mapping[str, str]) -> np.ndarray:
        """Phase 2: the upload under all masks that this site shares with those whose shares it got, and its own."""
        if len(sealed) + 1 < self.threshold:
            raise Refused(f"{len(sealed) + 1} sites are too few for a secure sum, expected {self.threshold}")
        if len(self._held) != 1:
            raise Refused("a secure sum has one upload of a site")
        for name, text in sealed.items():
            try:
                given = json.loads(decrypt(self._sealed_with(name), text.encode()))
            except InvalidToken:
                raise Refused(f"the shares of site '{name}' cannot be opened") from None
            if (given["from"], given["to"], given["attempt"]) != (name, self.name, self.attempt):
                raise Refused(f"shares of site '{name}' are not meant for this site or this sum")
            self._held[name] = {"seed": given["seed"], "key": given["key"]}
        found = words + stream(self._seed, words.size)
        for name in sealed:
            found = found + pair_mask(self._mask_key, self.name, name, self._public[name]["mask"], words.size)
        return found

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

    def _sealed_with(self, name: str) -> bytes:
        if name not in self._public:
            raise Refused(f"site '{name}' gave no keys for this secure sum")
        return generate_shared_key(self._seal_key, bytes_to_public_key(self._public[name]["seal"].encode()))


def unmasked(
    masked: Mapping[str, np.ndarray],
    sharers: Iterable[str],
    public: Mapping[str, Mapping[str, str]],
    revealed: Iterable[Mapping[str, Shares]],
    threshold: int,
) -> np.ndarray:
    """The sum of the uploads that came, in words; `sharers` are the sites whose masks are in them."""
    found: dict[str, dict[str, list[str]]] = {"seed": {}, "key": {}}
    for given in revealed:
        for kind, shares in found.items():
            for name, share in given[kind].items():
                shares.setdefault(name, []).append(share)
    total = reduce(np.add, masked.values())
    for name in masked:
        total = total - stream(_combined(found["seed"].get(name, []), threshold, name), total.size)
    for name in set(sharers) - set(masked):
        key = _key(_combined(found["key"].get(name, []), threshold, name), name)
        if _public_of(key) != public[name]["mask"]:
            raise Refused(f"the shares of site '{name}' do not give its key")
        for other in masked:  # what `other` added for `name` is what `name` would have taken off
            total = total + pair_mask(key, name, other, public[other]["mask"], total.size)
    return total


def pair_mask(key: Any, mine: str, other: str, public: str, size: int) -> np.ndarray:
    """The mask of two sites as the first of them adds it: theirs add up to zero."""
    shared = base64.urlsafe_b64decode(generate_shared_key(key, bytes_to_public_key(public.encode())))
    found = stream(shared, size)
    return found if mine > other else np.zeros_like(found) - found


def stream(key: bytes, size: int) -> np.ndarray:
    """`size` words of ChaCha20's key stream; a key serves once."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(WORD.itemsize * size)), WORD)


def _combined(shares: list[str], threshold: int, name: str) -> bytes:
    if len(shares) < threshold:
        raise Refused(f"{len(shares)} shares of site '{name}', expected {threshold}")
    try:
        return combine_shares([bytes.fromhex(share) for share in shares[:threshold]])
    except ValueError as error:
        raise Refused(f"the shares of site '{name}' do not fit together: {error}") from None


def is_public(given: Any) -> bool:
    """Whether this is what `Member.public` gives."""
    if not isinstance(given, dict) or set(given) != {"mask", "seal"}:
        return False
    try:
        return all(bytes_to_public_key(str(key).encode()) is not None for key in given.values())
    except ValueError:
        return False


def are_shares(given: Any, names: Iterable[str]) -> bool:
    """Whether these are texts for, or shares of, exactly these sites."""
    return isinstance(given, dict) and set(given) == set(names) and all(isinstance(v, str) for v in given.values())


def _key(text: bytes, name: str) -> Any:
    try:
        return bytes_to_private_key(text)
    except ValueError:
        raise Refused(f"the shares of site '{name}' do not give its key") from None


def _public_of(key: Any) -> str:
    return public_key_to_bytes(key.public_key()).decode()
