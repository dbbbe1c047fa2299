"""What the secure sum is built of does what it says, and refuses what is none."""

from __future__ import annotations

import os
from itertools import combinations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from polyfed.deploy.secure.masks import is_public_key
from polyfed.deploy.secure.primitives import (
    agreed,
    combined,
    key_of,
    new_key,
    public_text,
    read_public,
    secret_of,
    split,
)


def test_any_three_of_five_shares_give_the_secret_and_two_do_not() -> None:
    key = new_key()
    shares = split(secret_of(key), threshold=3, number=5)
    for some in combinations(shares, 3):
        assert public_text(key_of(combined(some))) == public_text(key)
    assert all(combined(some) != secret_of(key) for some in combinations(shares, 2))


@pytest.mark.parametrize(
    "broken", [b"", b"\x01\x00\x00\x00", bytes(5), bytes(4 + 32)], ids=["empty", "index", "cut", "long"]
)
def test_what_is_no_share_is_a_value_error(broken: bytes) -> None:
    first, second, _ = split(os.urandom(48), threshold=2, number=3)
    for shares in ([broken, second], [first, broken], [first, first]):
        with pytest.raises(ValueError):  # noqa: PT011
            combined(shares)


def test_two_keys_agree_and_a_third_does_not() -> None:
    one, two, three = new_key(), new_key(), new_key()
    assert agreed(one, two.public_key()) == agreed(two, read_public(public_text(one)))
    assert agreed(one, two.public_key()) != agreed(three, two.public_key())


@pytest.mark.parametrize("secret", [bytes(48), b"\xff" * 48, b"\xff" * 96])
def test_a_number_of_no_key_is_a_value_error(secret: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        key_of(secret)


def test_a_key_of_another_kind_is_no_public_key() -> None:
    others = (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    for key in others:
        assert not is_public_key(key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())
    assert is_public_key(public_text(new_key()))
    assert not is_public_key("none")
