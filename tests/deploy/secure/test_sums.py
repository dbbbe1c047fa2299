"""Secure sums: the server sees masked vectors and their sum, whoever drops out on the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

import polyfed as pf
from polyfed.deploy.protocol.wire import Refused, as_arrays
from polyfed.deploy.secure.masks import FixedPoint, Member, stream, unmasked
from polyfed.deploy.secure.sums import SecureSite
from polyfed.deploy.settings import server_settings
from tests.deploy.loopback import PROBLEM, Loopback
from tests.deploy.test_equality import assert_equal, close, few, simulated, small

NAMES = ("a", "b", "c", "d")
FIXED = FixedPoint(1e6, 4)


def shared(threshold: int = 3) -> tuple[dict[str, Member], Any, dict[str, dict[str, str]]]:
    """Four members after the first two phases."""
    members = {name: Member(name, "once", threshold) for name in NAMES}
    public = {name: member.public() for name, member in members.items()}
    return members, public, {name: member.shares(public) for name, member in members.items()}


def sealed_for(name: str, shares: dict[str, dict[str, str]]) -> dict[str, str]:
    return {other: given[name] for other, given in shares.items() if other != name}


@pytest.mark.parametrize("gone", [(), ("c",)])
def test_the_sum_is_right_to_the_fixed_points_error_with_and_without_a_dropout(gone) -> None:
    rng, (members, public, shares) = np.random.default_rng(0), shared()
    vectors = {name: rng.normal(size=200) * 10.0**place for place, name in enumerate(NAMES)}
    masked = {
        name: member.masked(FIXED.encoded(vectors[name]), sealed_for(name, shares))
        for name, member in members.items()
        if name not in gone
    }
    asked = list(masked)[:3]  # one of those who sent says nothing more
    revealed = [members[name].reveal(masked, gone) for name in asked]
    found = FIXED.decoded(unmasked(masked, NAMES, public, revealed, 3))
    error = np.max(np.abs(found - np.sum([vectors[name] for name in masked], axis=0)))
    assert error <= FIXED.error * (1 + 1e-3)
    assert FIXED.error < 1e-11
    for name, words in masked.items():  # a masked vector says nothing: its bits are coins
        bits = np.unpackbits(words.view(np.uint8))
        assert abs(np.mean(bits) - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
        assert not np.any(words == FIXED.encoded(vectors[name]))
    with pytest.raises(Refused, match="2 shares of site"):
        unmasked(masked, NAMES, public, revealed[:2], 3)


@pytest.mark.parametrize("words", [1, 2, 3])
def test_more_words_carry_more_digits(words) -> None:
    rng, fixed = np.random.default_rng(1), FixedPoint(1e6, 3, words)
    vectors = rng.normal(size=(3, 50)) * 10.0 ** rng.integers(-40, 5, (3, 50))
    total = np.sum([fixed.encoded(vector) for vector in vectors], axis=0)
    assert total.shape == (50 * words,)
    expected = np.sum(vectors, axis=0)
    off = np.abs(fixed.decoded(total) - expected)
    assert np.all(off <= fixed.error + 4e-16 * np.max(np.abs(vectors), axis=0))
    assert fixed.error < (1e-11, 1e-29, 1e-47)[words - 1]
    assert np.all(np.abs(fixed.encoded(np.full(1, -1e6)).astype(np.int64)) < 2**62)


def test_multipliers_that_are_all_zero_average_uniformly_under_masks(three, loopback) -> None:
    grid, method = loopback(), {**small("fedbc"), "dual_lr": 0.0}
    server = grid.serve(method, {"rounds": 3}, secure=True)
    assert_equal(grid, server, simulated(three, method, 3))
    uniform = simulated(three, {**method, "weighting": "uniform"}, 3)
    close(server.params, uniform.server.params)


def test_a_late_upload_stays_hidden() -> None:
    """Who was said to have dropped out is still under its own mask, of which nobody gives shares then."""
    members, _, shares = shared()
    words = FIXED.encoded(np.arange(5.0))
    for name, member in members.items():
        member.masked(words, sealed_for(name, shares))
    for there, gone in ((NAMES, ("d",)), (("a", "b"), ("c", "d")), (("a", "b", "e"), ())):
        with pytest.raises(Refused):
            members["a"].reveal(there, gone)
    assert set(members["a"].reveal(("a", "b", "c"), ("d",))["seed"]) == {"a", "b", "c"}
    with pytest.raises(Refused, match="given once"):
        members["a"].reveal(("a", "b", "c", "d"), ())


def test_shares_that_do_not_fit_are_named_and_end_no_process() -> None:
    members, public, shares = shared()
    words = FIXED.encoded(np.arange(5.0))
    with pytest.raises(Refused, match="the shares of site 'b' cannot be opened"):
        members["a"].masked(words, {**sealed_for("a", shares), "b": shares["c"]["a"]})
    members, public, shares = shared()
    masked = {name: members[name].masked(words, sealed_for(name, shares)) for name in "abc"}
    revealed = [members[name].reveal(masked, ("d",)) for name in masked]
    revealed[0]["key"]["d"] = revealed[1]["key"]["d"][:8] + "00" * (len(revealed[1]["key"]["d"]) // 2 - 4)
    with pytest.raises(Refused, match="shares of site 'd'"):
        unmasked(masked, NAMES, public, revealed, 3)


def test_masks_of_a_key_are_chacha20s_key_stream() -> None:
    """The words of RFC 8439, 2.4.2's block function at counter 0 for a key of zeros."""
    first = stream(bytes(32), 2).tobytes().hex()
    assert first == "76b8e0ada0f13d90405d6ae55386bd28"


def test_what_does_not_fit_the_fixed_point_is_refused() -> None:
    with pytest.raises(Refused, match="not finite"):
        FIXED.encoded(np.array([0.0, np.nan]))
    with pytest.raises(Refused, match=r"2e\+06, beyond federation.bound = 1e\+06"):
        FIXED.encoded(np.array([0.0, -2e6]))
    with pytest.raises(Refused, match="beyond what its uploads can add up to"):
        FIXED.decoded(np.array([2**62 + 2**61], "<u8"))


def test_a_site_takes_no_part_in_a_sum_that_hides_too_little(tmp_path) -> None:
    site = SecureSite("a", tmp_path / "summed.json")
    head = {"run": "study", "round": 0, "attempt": "x", "phase": "keys", "bound": 1.0, "words": 1}
    for parties, threshold in ((1, 1), (3, 1), (4, 2)):
        with pytest.raises(Refused, match="would hide too little"):
            site.answer(json.dumps({**head, "parties": parties, "threshold": threshold}))
    with pytest.raises(Refused, match="has no part in"):
        site.answer(json.dumps({**head, "phase": "reveal", "there": ["a"], "gone": []}))


def test_a_round_is_summed_up_again_with_the_same_sites_only(tmp_path) -> None:
    """Two sums of the same uploads tell the one that is not in both; a site that was restarted still knows."""

    def asked(number: int, there: list[str]) -> dict[str, str]:
        sites = {name: SecureSite(name, tmp_path / name / "summed.json") for name in "abc"}
        head = {"run": "study", "round": number, "attempt": "x"}
        first = {**head, "phase": "keys", "parties": 3, "threshold": 2, "bound": 1.0, "words": 1}
        public = {name: json.loads(site.answer(json.dumps(first))) for name, site in sites.items()}
        second = json.dumps({**head, "phase": "shares", "public": public})
        shares = {name: json.loads(site.answer(second)) for name, site in sites.items()}
        sealed = json.dumps({**head, "phase": "upload", "sealed": sealed_for("a", shares)})
        sites["a"].masked(sealed, "study", number, np.zeros(2))
        last = {**head, "phase": "reveal", "there": there, "gone": sorted(set("abc") - set(there))}
        return json.loads(sites["a"].answer(json.dumps(last)))["seed"]

    assert set(asked(4, ["a", "b", "c"])) == set(asked(4, ["a", "b", "c"])) == {"a", "b", "c"}
    with pytest.raises(Refused, match="round 5 was summed up before, with a, b, c"):
        asked(4, ["a", "b"])
    assert set(asked(5, ["a", "b"])) == {"a", "b"}


METHODS = {
    "fedavg": {"weighting": "size"},
    "scaffold": {},
    "scafflix": {"alpha": "lean"},
    "apfl": {},
    "fedbc": {"dual_lr": 1e-7},
}
"""Weights of rows, several parts, weights that follow from hyper-parameters, a state, and tiny weights."""


@pytest.mark.parametrize("name", few(METHODS, "fedavg", "fedbc"))
def test_a_secure_run_equals_the_simulated_one_and_the_server_sees_masked_words_alone(three, loopback, name) -> None:
    grid, method, seen = loopback(), {**small(name), **METHODS[name]}, []

    def watch(site: str, number: int, reply: Message) -> Message:
        if number >= 0:
            about = dict(reply.content.config_records["about"])
            assert set(about) == {"site", "run", "round", "fingerprint", "good"}
            [(record, arrays)] = reply.content.array_records.items()
            assert record == "masked"
            seen.append(as_arrays(arrays)["words"])
        return reply

    grid.change = watch
    server = grid.serve(method, {"rounds": 3}, secure=True)
    grid.change = None
    assert_equal(grid, server, simulated(three, method, 3))
    assert len(seen) == 9
    bits = np.unpackbits(np.concatenate(seen).view(np.uint8))
    assert abs(np.mean(bits) - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_who_drops_out_between_the_phases_is_left_out_of_the_sum_and_comes_back(loopback) -> None:
    """The second site's upload of round 2 is lost; in round 3 its shares cannot be read, which does not matter."""

    def lossy(grid: Loopback, phases: bool) -> Any:
        calls: dict[str, int] = {}

        def change(site: str, number: int, reply: Message) -> Message | None:
            about = reply.content.config_records["about"]
            if site != grid.names[1]:
                return reply
            if number == 1:
                return None
            if phases and number < 0 and "secure" in about and "seed" in json.loads(str(about["secure"])):
                calls["shares"] = calls.get("shares", 0) + 1
                if calls["shares"] == 2:
                    about["secure"] = json.dumps({"seed": {}, "key": "none"})
            return reply

        grid.change = change
        found = grid.serve({**small("fedavg")}, {"rounds": 3}, minimum=2, deadline=0.6, secure=phases)
        progress = (grid.folder / "server/runs/study/progress.jsonl").read_text().splitlines()
        assert [len(json.loads(line)["sites"]) for line in progress] == [3, 2, 3]
        return found

    close(lossy(loopback("masked"), True), lossy(loopback("plain"), False))


def test_a_site_may_insist_on_masks(loopback, caplog) -> None:
    with pytest.raises(pf.PolyfedError, match="0 of 3 sites answered"):
        loopback(plain=False).serve(small("fedavg"), {"rounds": 1}, patience=1)
    assert "its config allows masked uploads only, and the server asks for a plain one" in caplog.text


@pytest.mark.deploy
def test_privacy_and_masks_go_together(three, loopback) -> None:
    pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
    section: dict[str, Any] = {"clip": 0.05, "noise": 0.5, "delta": 0.01}
    method = {**small("fedavg"), "weighting": "uniform"}
    grid = loopback()
    server = grid.serve(method, {"rounds": 3}, privacy={**section, "seed": 0}, secure=True)
    assert_equal(grid, server, simulated(three, method, 3, privacy=pf.Privacy(**section)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"algorithm": {"name": "dcgd", "lr": 0.1, "compressor": "natural"}},
            "dcgd: compressed uploads do not go with",
        ),
        ({"run": {"participation": 1}}, "federation.secure needs at least 2 sites"),
        ({"federation": {"sites": ["a", "b"], "secure": "yes"}}, "federation.secure must be true or false"),
    ],
)
def test_what_masks_do_not_go_with_is_named(changes, said) -> None:
    sections = {
        "federation": {"sites": ["a", "b"], "secure": True},
        "problem": PROBLEM,
        "algorithm": {"name": "fedavg"},
    }
    with pytest.raises(pf.PolyfedError, match=said):
        server_settings({**sections, **changes}, "server.toml")
