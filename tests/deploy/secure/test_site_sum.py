"""What a site refuses in a secure sum."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.site_sum import SecureSumSite
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.site.policy import PinnedTerms
from tests.deploy.expected import simulated, small
from tests.deploy.loopback import Loopback
from tests.deploy.secure.test_masks import sealed_for
from tests.deploy.server.test_coordinator import METHOD, scripted

HEAD = {
    "run": "study",
    "round": 0,
    "attempt": "x",
    "phase": "keys",
    "bound": 1.0,
    "words": 1,
    "roster": ["a", "b", "c"],
}


def test_a_site_takes_no_part_in_a_sum_that_hides_too_little(tmp_path) -> None:
    site = SecureSumSite("a", tmp_path / "summed.json")
    for parties, threshold in ((1, 1), (3, 1), (4, 2)):
        with pytest.raises(Refused, match="would hide too little"):
            site.answer(json.dumps({**HEAD, "parties": parties, "threshold": threshold}))
    with pytest.raises(Refused, match="has no part in"):
        site.answer(json.dumps({**HEAD, "phase": "reveal", "there": ["a"], "gone": []}))
    with pytest.raises(Refused, match="a roster without this site"):
        site.answer(json.dumps({**HEAD, "parties": 2, "threshold": 2, "roster": ["b", "c"]}))
    strict = SecureSumSite("a", tmp_path / "summed.json", fewest=3)
    with pytest.raises(Refused, match="its policy allows sums of at least 3 sites, this one has 2"):
        strict.answer(json.dumps({**HEAD, "parties": 2, "threshold": 2}))


def asked(
    folder: Path, there: list[str], what: str = "round 5", fewest: int = 2, run: str = "study", gives: str = "seed"
) -> set[str]:
    """One sum of three sites up to the last phase, in which 'a' is told who is there; what it then gives."""
    sites = {name: SecureSumSite(name, folder / name / "summed.json", fewest) for name in "abc"}
    head = {**HEAD, "run": run, "round": 4}
    first = {**head, "phase": "keys", "parties": 3, "threshold": 2}
    public = {name: json.loads(site.answer(json.dumps(first))) for name, site in sites.items()}
    second = json.dumps({**head, "phase": "shares", "public": public})
    given = {name: json.loads(site.answer(second)) for name, site in sites.items()}
    sealed = sealed_for("a", {name: both["sealed"] for name, both in given.items()})
    commitments = {name: both["commitments"] for name, both in given.items()}
    upload = json.dumps({**head, "phase": "upload", "sealed": sealed, "commitments": commitments})
    sites["a"].masked(upload, run, 4, what, np.zeros(2))
    last = {**head, "phase": "reveal", "there": there, "gone": sorted(set("abc") - set(there))}
    answer = json.loads(sites["a"].answer(json.dumps(last)))
    assert set(answer) == ({"seed", "key"} if gives == "seed" else {gives})
    return set(answer[gives])


def test_the_same_upload_is_summed_up_with_the_same_sites_only_in_whichever_run(tmp_path) -> None:
    """Two sums of the same uploads reveal the one that is in only one of them; a restarted site still remembers."""
    assert asked(tmp_path, ["a", "b", "c"]) == asked(tmp_path, ["c", "b", "a"]) == {"a", "b", "c"}
    for run in ("study", "another run"):
        assert asked(tmp_path, ["a", "b"], run=run, gives="before") == {"a", "b", "c"}
    assert asked(tmp_path, ["a", "b"], what="another round") == {"a", "b"}


def test_a_site_gives_no_share_of_a_sum_below_its_own_minimum(tmp_path) -> None:
    with pytest.raises(Refused, match="its policy allows sums of at least 3 sites, this one has 2"):
        asked(tmp_path, ["a", "b"], fewest=3)
    assert asked(tmp_path, ["a", "b", "c"], fewest=3) == {"a", "b", "c"}


def test_masked_sums_of_two_rosters_cannot_be_subtracted(three, loopback, caplog) -> None:
    """The attack of a curious server: the same run again, under another name, without one site."""
    grid: Loopback = loopback()
    grid.serve(small("fedavg"), {"rounds": 1}, secure=True)
    grid.names = three.clients[:2]
    with pytest.raises(pf.PolyfedError, match="0 of 2 sites answered"):
        grid.serve(small("fedavg"), {"rounds": 1}, secure=True, name="again", patience=1)
    assert "the terms are not those that its operator accepted" in caplog.text
    for site in three.clients[:2]:
        pinned = PinnedTerms(grid.folder / site)
        pinned.accept(pinned.waiting())
        assert not pinned.waiting()
    with pytest.raises(pf.PolyfedError, match="0 of 2 sites answered"):  # nor the same uploads, once it is accepted
        grid.serve(small("fedavg"), {"rounds": 1}, secure=True, name="again", patience=1)
    assert "round 1 was summed up before, with site-0, site-1, site-2" in caplog.text


def test_a_sum_that_was_lost_with_its_server_is_made_again_of_the_same_sites(three, loopback, monkeypatch) -> None:
    """Two of three are in the sum, and the server is killed before it keeps it. Then the third one is back."""
    grid: Loopback = loopback()
    keep = Coordinator._save

    def killed(self: Coordinator) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Coordinator, "_save", killed)
    grid.change = lambda site, number, reply: None if (site, number) == ("site-2", 0) else reply
    with pytest.raises(KeyboardInterrupt):
        grid.serve(METHOD, {"rounds": 3}, secure=True, minimum=2)
    monkeypatch.setattr(Coordinator, "_save", keep)
    grid.change = None
    grid.serve(METHOD, {"rounds": 3}, secure=True, minimum=2)
    here = [True, True, True]
    grid.assert_equal(scripted(monkeypatch, three, [[True, True, False], here, here]))


def test_one_bad_share_names_its_culprit_and_does_not_end_the_run(three, loopback, caplog) -> None:
    grid: Loopback = loopback()

    def corrupt(site: str, number: int, reply: Answer) -> Answer:
        about = reply.content.config_records["about"]
        if site == "site-1" and "secure" in about and set(json.loads(str(about["secure"]))) == {"seed", "key"}:
            shares = json.loads(str(about["secure"]))
            shares["seed"]["site-0"] = shares["seed"]["site-2"]
            about["secure"] = json.dumps(shares)
        return reply

    grid.change = corrupt
    grid.serve(small("fedavg"), {"rounds": 2}, secure=True)
    grid.change = None
    assert (
        "site 'site-1' refused: round 1: a share that it was given to keep is not the one that it gave back"
        in caplog.text
    )
    grid.assert_equal(simulated(three, small("fedavg"), 2))


def test_a_site_may_insist_on_masks(loopback, caplog) -> None:
    with pytest.raises(pf.PolyfedError, match="0 of 3 sites answered"):
        loopback(plain=False).serve(small("fedavg"), {"rounds": 1}, patience=1)
    assert "its config allows masked uploads only, and the server asks for a plain one" in caplog.text
