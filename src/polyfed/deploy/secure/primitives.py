"""The primitives of the secure sum: key agreement and sealing by `cryptography`, secret sharing by PyCryptodome."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

CURVE = ec.SECP384R1()
SECRET = CURVE.key_size // 8
"""Bytes of a private key's number."""
BLOCK = 16
"""Bytes that PyCryptodome shares at a time."""
INDEX = 4
"""Bytes of the number that a share begins with."""


def new_key() -> EllipticCurvePrivateKey:
    return ec.generate_private_key(CURVE)


def public_text(key: EllipticCurvePrivateKey) -> str:
    """The public half of a key, as it travels."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def read_public(text: str) -> EllipticCurvePublicKey:
    """The key that `public_text` wrote; a ValueError where it is none, or one of another curve."""
    try:
        key = serialization.load_pem_public_key(text.encode())
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name != CURVE.name:
        raise ValueError(f"it is no key of {CURVE.name}")
    return key


def secret_of(key: EllipticCurvePrivateKey) -> bytes:
    """The number that a private key is."""
    return key.private_numbers().private_value.to_bytes(SECRET, "big")


def key_of(secret: bytes) -> EllipticCurvePrivateKey:
    """The key of a number; a ValueError where the number is that of no key."""
    return ec.derive_private_key(int.from_bytes(secret, "big"), CURVE)


def agreed(mine: EllipticCurvePrivateKey, theirs: EllipticCurvePublicKey) -> bytes:
    """32 bytes that only the holders of the two keys can compute."""
    return HKDF(hashes.SHA256(), length=32, salt=None, info=None).derive(mine.exchange(ec.ECDH(), theirs))


def sealed(key: bytes, text: str) -> str:
    return Fernet(base64.urlsafe_b64encode(key)).encrypt(text.encode()).decode()


def opened(key: bytes, text: str) -> bytes:
    """What was sealed; `cryptography`'s InvalidToken where the key is another, or the text was changed."""
    return Fernet(base64.urlsafe_b64encode(key)).decrypt(text.encode())


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Shares of a secret of whole blocks: `threshold` of them give it, and fewer tell nothing."""
    assert len(secret) % BLOCK == 0
    blocks = [
        Shamir.split(threshold, number, secret[start : start + BLOCK], ssss=False)
        for start in range(0, len(secret), BLOCK)
    ]
    return [
        index.to_bytes(INDEX, "little") + b"".join(shares[place][1] for shares in blocks)
        for place, (index, _) in enumerate(blocks[0])
    ]


def combined(shares: Sequence[bytes]) -> bytes:
    """The secret; a ValueError where shares are none, or one comes twice."""
    length = len(shares[0])
    if length <= INDEX or (length - INDEX) % BLOCK or any(len(share) != length for share in shares):
        raise ValueError("shares of different lengths")
    numbers = [int.from_bytes(share[:INDEX], "little") for share in shares]
    return b"".join(
        Shamir.combine(
            [(number, share[start : start + BLOCK]) for number, share in zip(numbers, shares, strict=True)], ssss=False
        )
        for start in range(INDEX, length, BLOCK)
    )
