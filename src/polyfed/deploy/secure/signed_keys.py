"""Mask keys that are signed: sites know each other by keys that their operators pinned, not through the server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from polyfed.core.errors import PolyfedError
from polyfed.deploy.keys import read_private_key, read_public_key
from polyfed.deploy.protocol.names import is_name
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.masks import PublicKeys

SCHEME = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class KnownSites:
    """A site's own key, and the public keys of the other sites that its operator pinned."""

    own: ec.EllipticCurvePrivateKey | None = None
    pinned: Mapping[str, ec.EllipticCurvePublicKey] = field(default_factory=dict)
    required: bool = False
    """whether a sum may have pinned sites only"""

    @classmethod
    def read(cls, key: Path, roster: Path, required: bool) -> KnownSites:
        """The site's key, and the keys NAME.pub in the folder `roster`."""
        files = sorted(roster.glob("*.pub")) if roster.is_dir() else []
        if required and not files:
            raise PolyfedError(f"{roster}: policy.pinned_sites needs the other sites' public keys there, as NAME.pub")
        return cls(
            read_private_key(key), {file.stem: read_public_key(file) for file in files if is_name(file.stem)}, required
        )

    def signed(self, attempt: str, name: str, keys: PublicKeys) -> PublicKeys:
        """This site's mask keys for a sum, with its signature."""
        if self.own is None:
            return keys
        return {**keys, "signature": self.own.sign(_statement(attempt, name, keys), SCHEME).hex()}

    def refuse_forged(self, attempt: str, name: str, public: Mapping[str, PublicKeys]) -> None:
        """Refuse a sum in which a site's mask keys are not signed by the key that is pinned for it."""
        for other, keys in public.items():
            if other == name:
                continue
            if other not in self.pinned:
                if self.required:
                    raise Refused(f"its policy allows sums with pinned sites only, and has no key of site '{other}'")
                continue
            try:
                signature = bytes.fromhex(keys.get("signature", ""))
                self.pinned[other].verify(signature, _statement(attempt, other, keys), SCHEME)
            except (ValueError, InvalidSignature):
                raise Refused(
                    f"the mask keys of site '{other}' are not signed by the key that is pinned here"
                ) from None


def _statement(attempt: str, name: str, keys: PublicKeys) -> bytes:
    """What a site signs: that these are its keys for this sum."""
    return b"polyfed mask keys\0" + json.dumps([attempt, name, keys["mask"], keys["seal"]]).encode()
