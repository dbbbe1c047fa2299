"""Masks: the server sees masked vectors and their sum, whoever drops out on the way."""

from __future__ import annotations

import numpy as np
import pytest

from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.fixed_point import FixedPoint
from polyfed.deploy.secure.masks import (
    Commitments,
    Culprit,
    PublicKeys,
    SumMember,
    changed_shares,
    key_stream,
    unmasked,
)

NAMES = ("a", "b", "c", "d")
FIXED = FixedPoint(1e6, 4)


def committed(members: dict[str, SumMember]) -> dict[str, Commitments]:
    return {name: member.commitments() for name, member in members.items()}


def shared(threshold: int = 3) -> tuple[dict[str, SumMember], dict[str, PublicKeys], dict[str, dict[str, str]]]:
    """Four members after the first two phases."""
    members = {name: SumMember(name, "once", threshold) for name in NAMES}
    public = {name: member.public_keys() for name, member in members.items()}
    return members, public, {name: member.shares(public) for name, member in members.items()}


def sealed_for(name: str, shares: dict[str, dict[str, str]]) -> dict[str, str]:
    return {other: given[name] for other, given in shares.items() if other != name}


@pytest.mark.parametrize("gone", [(), ("c",)])
def test_the_sum_is_right_to_the_fixed_points_error_with_and_without_a_dropout(gone) -> None:
    rng, (members, public, shares) = np.random.default_rng(0), shared()
    vectors = {name: rng.normal(size=200) * 10.0**place for place, name in enumerate(NAMES)}
    masked = {
        name: member.masked(FIXED.encoded(vectors[name]), sealed_for(name, shares), committed(members))
        for name, member in members.items()
        if name not in gone
    }
    asked = list(masked)[:3]  # one of those who sent says nothing more
    revealed = {name: members[name].reveal(masked, gone) for name in asked}
    total = FIXED.decoded(unmasked(masked, NAMES, public, revealed, 3, "once", committed(members)))
    error = np.max(np.abs(total - np.sum([vectors[name] for name in masked], axis=0)))
    assert error <= FIXED.error * (1 + 1e-3)
    assert FIXED.error < 1e-11
    for name, words in masked.items():  # a masked vector says nothing: its bits are coins
        bits = np.unpackbits(words.view(np.uint8))
        assert abs(np.mean(bits) - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
        assert not np.any(words == FIXED.encoded(vectors[name]))
    few = dict(list(revealed.items())[:2])
    with pytest.raises(Refused, match="2 shares of site"):
        unmasked(masked, NAMES, public, few, 3, "once", committed(members))


def test_a_late_upload_stays_hidden() -> None:
    """A member that was reported as dropped out stays under its own mask: nobody gives shares of it any more."""
    members, _, shares = shared()
    words = FIXED.encoded(np.arange(5.0))
    for name, member in members.items():
        member.masked(words, sealed_for(name, shares), committed(members))
    for there, gone in ((NAMES, ("d",)), (("a", "b"), ("c", "d")), (("a", "b", "e"), ())):
        with pytest.raises(Refused):
            members["a"].reveal(there, gone)
    assert set(members["a"].reveal(("a", "b", "c"), ("d",))["seed"]) == {"a", "b", "c"}
    with pytest.raises(Refused, match="given once"):
        members["a"].reveal(("a", "b", "c", "d"), ())


def test_shares_that_do_not_fit_are_named_and_end_no_process() -> None:
    members, _, shares = shared()
    words = FIXED.encoded(np.arange(5.0))
    with pytest.raises(Refused, match="the shares of site 'b' cannot be opened"):
        members["a"].masked(words, {**sealed_for("a", shares), "b": shares["c"]["a"]}, committed(members))
    lying = {**committed(members), "b": dict.fromkeys(members["b"].commitments(), "0" * 64)}
    members, _, shares = shared()
    with pytest.raises(Culprit, match="the shares of site 'b' are not those that it committed to"):
        members["a"].masked(words, sealed_for("a", shares), {**committed(members), "b": lying["b"]})


def test_one_bad_share_names_its_culprit_and_the_sum_is_right_without_it() -> None:
    """Four of four sent, three are enough: 'b' gives back another share of c's mask than it was given."""
    members, public, shares = shared()
    vectors = {name: np.arange(5.0) + place for place, name in enumerate(NAMES)}
    masked = {
        name: member.masked(FIXED.encoded(vectors[name]), sealed_for(name, shares), committed(members))
        for name, member in members.items()
    }
    revealed = {name: members[name].reveal(masked, ()) for name in NAMES}
    revealed["b"]["seed"]["c"] = revealed["a"]["seed"]["c"]
    assert changed_shares(revealed, "once", committed(members)) == {"b"}
    total = FIXED.decoded(unmasked(masked, NAMES, public, revealed, 3, "once", committed(members)))
    np.testing.assert_allclose(total, np.sum(list(vectors.values()), axis=0), atol=1e-10)


def test_a_site_whose_shares_give_another_mask_than_it_used_is_named() -> None:
    members, public, shares = shared()
    words = FIXED.encoded(np.arange(5.0))
    masked = {name: members[name].masked(words, sealed_for(name, shares), committed(members)) for name in NAMES}
    revealed = {name: members[name].reveal(masked, ()) for name in NAMES}
    lying = committed(members)
    lying["d"] = {**lying["d"], "seed": "0" * 64}
    with pytest.raises(Culprit) as culprit:
        unmasked(masked, NAMES, public, revealed, 3, "once", lying)
    assert culprit.value.site == "d"


def test_masks_cancel_in_the_sum_that_they_are_bound_to_alone() -> None:
    """A server that shows one site another roster gets words that add up to nothing."""
    members = {name: SumMember(name, "once", 3) for name in NAMES}
    public = {name: member.public_keys() for name, member in members.items()}
    shares = {name: member.shares(public) for name, member in members.items() if name != "d"}
    fewer = {name: public[name] for name in "abd"}
    shares["d"] = {**members["d"].shares(fewer), "c": shares["a"]["c"]}
    words = FIXED.encoded(np.zeros(5))
    masked = {}
    for name in "abd":
        sealed = {other: given[name] for other, given in shares.items() if other not in (name, "c")}
        masked[name] = members[name].masked(words, sealed, committed(members))
    revealed = {name: members[name].reveal(masked, ()) for name in "abd"}
    total = unmasked(masked, list("abd"), public, revealed, 3, "once", committed(members))
    assert (total != 0).all()  # without the binding all of them are


def test_masks_of_a_key_are_chacha20s_key_stream() -> None:
    """The words of RFC 8439, 2.4.2's block function at counter 0 for a key of zeros."""
    first = key_stream(bytes(32), 2).tobytes().hex()
    assert first == "76b8e0ada0f13d90405d6ae55386bd28"
