"""Mask keys that are signed: a server cannot put keys of its own in the place of a site's."""

from __future__ import annotations

from pathlib import Path

import pytest

import polyfed as pf
from polyfed.deploy.keys import make_site_key
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.masks import PublicKeys, SumMember
from polyfed.deploy.secure.signed_keys import KnownSites


@pytest.fixture
def known(tmp_path: Path) -> dict[str, KnownSites]:
    """Three sites that pinned each other's keys."""
    (tmp_path / "roster").mkdir()
    for name in "abc":
        make_site_key(tmp_path / f"{name}.key")
        (tmp_path / f"{name}.key.pub").rename(tmp_path / "roster" / f"{name}.pub")
    return {name: KnownSites.read(tmp_path / f"{name}.key", tmp_path / "roster", True) for name in "abc"}


def keys_of(known: dict[str, KnownSites], attempt: str = "x") -> dict[str, PublicKeys]:
    return {name: site.signed(attempt, name, SumMember(name, attempt, 2).public_keys()) for name, site in known.items()}


def test_keys_that_their_owners_signed_are_believed(known) -> None:
    known["a"].refuse_forged("x", "a", keys_of(known))


@pytest.mark.parametrize("how", ["own keys", "one key", "another sum", "another site", "unsigned", "no signature"])
def test_keys_that_a_server_put_in_a_sites_place_are_refused_by_its_name(known, how) -> None:
    public, forged = keys_of(known), SumMember("b", "x", 2).public_keys()
    public["b"] = {
        "own keys": {**forged, "signature": public["b"]["signature"]},
        "one key": {**public["b"], "seal": forged["seal"]},
        "another sum": keys_of(known, "y")["b"],
        "another site": public["c"],
        "unsigned": forged,
        "no signature": {**forged, "signature": "nothing"},
    }[how]
    with pytest.raises(Refused, match="the mask keys of site 'b' are not signed by the key that is pinned here"):
        known["a"].refuse_forged("x", "a", public)


def test_a_site_that_is_not_pinned_is_refused_where_the_policy_says_so(known) -> None:
    pinned = {name: key for name, key in known["a"].pinned.items() if name != "c"}
    with pytest.raises(Refused, match="has no key of site 'c'"):
        KnownSites(known["a"].own, pinned, True).refuse_forged("x", "a", keys_of(known))
    KnownSites(known["a"].own, pinned, False).refuse_forged("x", "a", keys_of(known))


def test_a_policy_that_needs_keys_which_are_not_there_is_named(tmp_path) -> None:
    make_site_key(tmp_path / "a.key")
    with pytest.raises(pf.PolyfedError, match=r"roster: policy.pinned_sites needs the other sites' public keys"):
        KnownSites.read(tmp_path / "a.key", tmp_path / "roster", True)
