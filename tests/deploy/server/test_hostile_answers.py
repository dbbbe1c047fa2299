"""Answers that are meant to harm: each is refused by name and counted, and the run goes on to the others' result."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import ConfigRecord

import polyfed as pf
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.server.going_back import kept_rounds, round_before
from polyfed.deploy.server.progress import read_progress
from polyfed.engine.checkpoint import checkpoint as checkpoints
from tests.conftest import few
from tests.deploy.expected import close, simulated, small
from tests.deploy.lies import FACTS, HOSTILE, changed, filled, lied, scaled
from tests.deploy.loopback import Loopback
from tests.deploy.server.test_coordinator import METHOD, scripted

FEDAVG = {**small("fedavg"), "weighting": "size"}


@pytest.mark.parametrize("kind", few(HOSTILE, "weight below zero", "upload of 1e30", "2^40 numbers"))
def test_a_hostile_answer_is_refused_by_name_and_counted_and_the_run_goes_on(
    three, loopback, monkeypatch, caplog, kind
) -> None:
    grid: Loopback = loopback()
    hurt, said = HOSTILE[kind]
    grid.change = lambda site, round, reply: hurt(reply) if site == "site-1" and round == 1 else reply
    with caplog.at_level(logging.WARNING, "polyfed"):
        server = grid.serve(FEDAVG, {"rounds": 3}, minimum=2)
    assert len([record for record in caplog.records if "site 'site-1' refused" in record.getMessage()]) == 1
    assert re.search(said.replace("{rows:g}", f"{three.train.sizes[1]:g}"), caplog.text), caplog.text
    newest = checkpoints.latest(grid.run_folder / "checkpoint")
    assert newest is not None
    assert json.loads((newest / "meta.json").read_text())["ledger"]["refused"] == {"site-1": 1}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server))


@pytest.mark.parametrize("kind", few(FACTS, "2^40 rows", "10^6 classes"))
def test_facts_beyond_bounds_are_refused_by_name(three, loopback, kind) -> None:
    grid: Loopback = loopback()
    change, said = FACTS[kind]

    def lie(site: str, round: int, reply: Answer) -> Answer:
        if site == "site-1":
            lied(reply.content.config_records["about"], change)
        return reply

    grid.change = lie
    with pytest.raises(pf.PolyfedError, match=f"site 'site-1' does not take part: .*{said}"):
        grid.serve(FEDAVG, {"rounds": 1})


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ([1e300, 0.0, 1.0], "smoothness constants must be a number from 0 to"),
        ([1e11, 0.0, 1.0], "site-1' reports a smoothness constant of 1e.11, more than 1e.06 times"),
        ([1.0, 2.0, 1.0], "mu at most L"),
    ],
)
def test_a_constant_that_would_stop_everybody_is_refused(loopback, constants, said, caplog) -> None:
    grid: Loopback = loopback()

    def lie(site: str, round: int, reply: Answer) -> Answer:
        about = reply.content.config_records["about"]
        if site == "site-1" and "smoothness" in str(about.get("facts", "")):
            about["facts"] = json.dumps({"smoothness": constants})
        return reply

    grid.change = lie
    with pytest.raises(pf.PolyfedError, match=said):
        grid.serve({"name": "scaffnew", "p": 0.5, "batch": "full"}, {"rounds": 1})


def test_a_state_that_is_not_finite_is_never_kept(three, loopback) -> None:
    """Every upload is finite and none stands out, but their sum is not: the server stops with the state before."""
    grid: Loopback = loopback()
    grid.change = lambda site, round, reply: filled(reply, 1.5e308) if round == 2 else reply
    with pytest.raises(pf.PolyfedError, match="round 3: the server's state would not be finite, so that of round 2"):
        grid.serve({**FEDAVG, "weighting": "uniform"}, {"rounds": 4}, outlier=float("inf"))
    grid.change = None
    server = grid.serve({**FEDAVG, "weighting": "uniform"}, {"rounds": 4})
    close(server, simulated(three, {**FEDAVG, "weighting": "uniform"}, 4).server)


@pytest.mark.full
def test_a_run_can_go_back_to_the_checkpoint_before(three, loopback) -> None:
    """The last round was poisoned by a site that kept within all bounds; its sites keep states, and go back, too."""
    grid: Loopback = loopback()
    grid.change = lambda site, round, reply: scaled(reply, 50.0) if (site, round) == ("site-1", 2) else reply
    poisoned = grid.serve(METHOD, {"rounds": 3})
    with pytest.raises(AssertionError):
        close(poisoned, simulated(three, METHOD, 3).server)
    grid.change = None
    grid.serve(METHOD, {"rounds": 5}, back=round_before(grid.run_folder))
    grid.assert_equal(simulated(three, METHOD, 5))


def test_a_bad_round_that_others_followed_is_undone_with_them(three, loopback) -> None:
    """Round 3 of 6 was poisoned, and it was noticed at the end; then it happens again, a round later."""
    grid: Loopback = loopback()
    for bad in (2, 3):
        grid.change = lambda site, round, reply, bad=bad: scaled(reply, 50.0) if round == bad else reply
        grid.serve(METHOD, {"rounds": 6}, back=None if bad == 2 else 2)
        with pytest.raises(AssertionError):
            close(grid.published, simulated(three, METHOD, 6).server)
        assert kept_rounds(grid.run_folder) == [6, 5, 4, 3, 2]
    grid.change = None
    with pytest.raises(pf.PolyfedError, match=r"no checkpoint of round 1 to go back to \(kept: 2, 3, 4, 5, 6\)"):
        grid.serve(METHOD, {"rounds": 6}, back=1)
    grid.serve(METHOD, {"rounds": 6}, back=3)
    grid.assert_equal(simulated(three, METHOD, 6))
    lines = read_progress(grid.run_folder / "progress.jsonl")
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]


def test_a_run_of_one_round_has_nothing_to_go_back_to(loopback) -> None:
    grid: Loopback = loopback()
    grid.serve({"name": "fedavg"}, {"rounds": 1})
    with pytest.raises(pf.PolyfedError, match="no checkpoint before the newest"):
        round_before(grid.run_folder)


def test_a_line_of_progress_that_a_crash_cut_is_written_again(loopback) -> None:
    grid: Loopback = loopback()
    grid.serve({"name": "fedavg"}, {"rounds": 3})
    path = grid.run_folder / "progress.jsonl"
    path.write_text(path.read_text()[:-20])  # the last line is not whole
    grid.serve({"name": "fedavg"}, {"rounds": 5})
    lines = read_progress(path)
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(len(line["sites"]) == 3 for line in lines)


def test_a_fixed_bound_on_the_norm(three, loopback, monkeypatch, caplog) -> None:
    grid: Loopback = loopback()
    grid.change = lambda site, round, reply: scaled(reply, 100.0) if (site, round) == ("site-1", 1) else reply
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve(METHOD, {"rounds": 3}, minimum=2, norm=5.0)
    assert "beyond federation.norm = 5" in caplog.text
    here = [True, True, True]
    grid.assert_equal(scripted(monkeypatch, three, [here, [True, False, True], here]))


def test_a_site_may_not_swap_the_compressor(three, loopback, caplog) -> None:
    """A code that claims another compressor, or a part that is not there, is not even decoded."""
    grid: Loopback = loopback()
    method: dict[str, Any] = {"name": "dcgd", "lr": 0.01, "compressor": {"name": "rand_k", "k": 3}}

    def lie(site: str, round: int, reply: Answer) -> Answer:
        if site == "site-1" and round == 0:
            about = reply.content.config_records["about"]
            codes = json.loads(str(about["code"]))
            about["code"] = json.dumps({f"{where}/not": code for where, code in codes.items()})
        return reply

    grid.change = lie
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve(method, {"rounds": 2}, minimum=2)
    assert "site 'site-1' refused: round 1: upload: its code cannot be read" in caplog.text


def test_metrics_and_models_that_are_none_are_refused(three, loopback, caplog) -> None:
    grid: Loopback = loopback(metrics=True, model=True)

    def lie(site: str, round: int, reply: Answer) -> Answer:
        if "model" in reply.content.array_records and site == "site-0":
            reply.content["about"] = ConfigRecord({"site": site, "metrics": '{"personal": [1, 2]}'})
        if "model" in reply.content.array_records and site == "site-1":
            reply.content["model"] = wire.as_record({"../../evil": np.zeros(3)})
        return reply

    grid.change = lie
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve({"name": "fedavg"}, {"rounds": 1})
    finished = json.loads((grid.run_folder / "finished.json").read_text())
    assert set(finished) == {"site-2"}
    assert "site 'site-0' refused: metrics must be a JSON object" in caplog.text
    assert "site 'site-1' refused: model has the arrays" in caplog.text


@pytest.mark.parametrize(
    "method", [{"name": "scafflix", "alpha": "lean", "p": 0.5}, {"name": "scaffnew", "p": 0.5}], ids=str
)
def test_a_weight_that_follows_from_constants_must_be_the_one_that_does(three, loopback, caplog, method) -> None:
    grid: Loopback = loopback()
    sent: list[float] = []

    def lie(site: str, round: int, reply: Answer) -> Answer:
        if round >= 0:
            sent.append(float(str(reply.content.config_records["about"]["weight"])))
        return changed(reply, weight=2 * sent[-1]) if (site, round) == ("site-1", 1) else reply

    grid.change = lie
    with caplog.at_level(logging.WARNING, "polyfed"):
        grid.serve(method, {"rounds": 2}, minimum=2)
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(told) == 1
    assert f"its weight is {2 * sent[4]:g}, expected {sent[4]:g} as it declared" in told[0]
