"""Secure sums across sites: the same result as in the simulator, and the server sees masked words alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.protocol.wire import as_arrays
from polyfed.deploy.secure.server_sum import SecureSumServer
from polyfed.deploy.settings import server_settings
from tests.conftest import few
from tests.deploy.expected import close, simulated, small
from tests.deploy.loopback import PROBLEM, Loopback


@pytest.mark.full
def test_multipliers_that_are_all_zero_average_uniformly_under_masks(three, loopback) -> None:
    grid, method = loopback(), {**small("fedbc"), "dual_lr": 0.0}
    server = grid.serve(method, {"rounds": 3}, secure=True)
    grid.assert_equal(simulated(three, method, 3))
    uniform = simulated(three, {**method, "weighting": "uniform"}, 3)
    close(server.params, uniform.server.params)


METHODS = {
    "fedavg": {"weighting": "size"},
    "scaffold": {},
    "scafflix": {"alpha": "lean"},
    "apfl": {},
    "fedbc": {"dual_lr": 1e-7},
}
"""Weights of rows, several parts, weights that follow from hyper-parameters, a state, and tiny weights."""


@pytest.mark.parametrize("name", few(METHODS, "fedavg"))
def test_a_secure_run_equals_the_simulated_one_and_the_server_sees_masked_words_alone(three, loopback, name) -> None:
    grid, method, seen = loopback(), {**small(name), **METHODS[name]}, []

    def watch(site: str, number: int, reply: Answer) -> Answer:
        if number >= 0:
            about = dict(reply.content.config_records["about"])
            assert set(about) == {"site", "run", "round", "fingerprint", "good"}
            [(record, arrays)] = reply.content.array_records.items()
            assert record == "masked"
            seen.append(as_arrays(arrays)["words"])
        return reply

    grid.change = watch
    grid.serve(method, {"rounds": 3}, secure=True)
    grid.change = None
    grid.assert_equal(simulated(three, method, 3))
    assert len(seen) == 9
    bits = np.unpackbits(np.concatenate(seen).view(np.uint8))
    assert abs(np.mean(bits) - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_who_drops_out_between_the_phases_is_left_out_of_the_sum_and_comes_back(loopback) -> None:
    """The second site's upload of round 2 is lost; in round 3 its shares cannot be read, which does not matter."""

    def lossy(grid: Loopback, phases: bool) -> Any:
        calls: dict[str, int] = {}

        def change(site: str, number: int, reply: Answer) -> Answer | None:
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


@pytest.mark.full
def test_privacy_and_masks_go_together(three, loopback) -> None:
    pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
    section: dict[str, Any] = {"clip": 0.05, "noise": 0.5, "delta": 0.01}
    method = {**small("fedavg"), "weighting": "uniform"}
    grid = loopback()
    grid.serve(method, {"rounds": 3}, privacy={**section, "seed": 0}, secure=True)
    grid.assert_equal(simulated(three, method, 3, privacy=pf.Privacy(**section, study=True)))


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


def test_a_sum_waits_longer_where_the_one_before_had_to_be_tried_again(loopback, monkeypatch) -> None:
    """Where sites are slow, no round begins with a wait that has just been too short; where they are not, it ends."""
    waited: list[float] = []
    gather, tries = SecureSumServer.gather, iter([False, False, True, True, True, False, True, True, True])

    def slow(secure: SecureSumServer, *args: Any) -> Any:
        waited.append(secure.deadline)
        return gather(secure, *args) if next(tries) else None

    monkeypatch.setattr(SecureSumServer, "gather", slow)
    loopback().serve(small("fedavg"), {"rounds": 6}, secure=True, deadline=0.5, patience=4)
    assert waited == [0.5, 1.0, 2.0, 1.0, 0.5, 0.5, 1.0, 0.5, 0.5]
