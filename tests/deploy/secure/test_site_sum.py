"""What a site refuses in a secure sum."""

from __future__ import annotations

import json

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.secure.site_sum import SecureSumSite
from tests.deploy.expected import small
from tests.deploy.secure.test_masks import sealed_for


def test_a_site_takes_no_part_in_a_sum_that_hides_too_little(tmp_path) -> None:
    site = SecureSumSite("a", tmp_path / "summed.json")
    head = {"run": "study", "round": 0, "attempt": "x", "phase": "keys", "bound": 1.0, "words": 1}
    for parties, threshold in ((1, 1), (3, 1), (4, 2)):
        with pytest.raises(Refused, match="would hide too little"):
            site.answer(json.dumps({**head, "parties": parties, "threshold": threshold}))
    with pytest.raises(Refused, match="has no part in"):
        site.answer(json.dumps({**head, "phase": "reveal", "there": ["a"], "gone": []}))


def test_a_round_is_summed_up_again_with_the_same_sites_only(tmp_path) -> None:
    """Two sums of the same uploads reveal the one that is in only one of them; a restarted site still remembers."""

    def asked(number: int, there: list[str]) -> dict[str, str]:
        sites = {name: SecureSumSite(name, tmp_path / name / "summed.json") for name in "abc"}
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


def test_a_site_may_insist_on_masks(loopback, caplog) -> None:
    with pytest.raises(pf.PolyfedError, match="0 of 3 sites answered"):
        loopback(plain=False).serve(small("fedavg"), {"rounds": 1}, patience=1)
    assert "its config allows masked uploads only, and the server asks for a plain one" in caplog.text
