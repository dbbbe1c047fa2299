"""A site's own limits on terms, and the terms that its operator has seen."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from typer.testing import CliRunner

import polyfed as pf
from polyfed.cli.main import app
from polyfed.deploy.project import make_project
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.tables import TableSettings
from polyfed.deploy.protocol.terms import Terms
from polyfed.deploy.settings import site_settings
from polyfed.deploy.site.policy import PinnedTerms, RunPolicy
from polyfed.deploy.site.site import Site
from polyfed.studies.config import algorithm_from
from polyfed.studies.newcomers.fitting import DataKind
from tests.deploy.loopback import Loopback

ONE_ROW = {"name": "fedavg", "batch": 1, "local_steps": 1, "lr": 1.0}
"""Its upload is one row's gradient: for a linear model, the row."""

ALL_BUT_ONE = {"name": "fomaml", "batch": -1, "inner_steps": 1, "inner_lr": 1e-12, "lr": 1.0}
"""Its first step takes all rows but one, and the next, whose gradient is the upload, the one that is left."""


def terms_of(three: pf.Federation, method: dict[str, Any] | None = None, **changes: Any) -> Terms:
    kind = DataKind.of(three, "softmax")
    method = method or {"name": "fedavg", "batch": 8, "local_steps": 4}
    terms = Terms("study", "site-0", algorithm_from(method), {"loss": "softmax"}, kind, 12, 0, None, "float64")
    return dataclasses.replace(terms, **{"rounds": 10, "fewest": 3, "roster": tuple(three.clients), **changes})


@pytest.mark.parametrize(
    ("policy", "method", "changes", "said"),
    [
        ({}, ONE_ROW, {}, "batches of at least 8 rows, the run has 1"),
        ({}, {"name": "fomaml", "batch": 15, "inner_steps": 1}, {}, "the last one of a pass has 1; set algorithm.even"),
        ({}, {"name": "fedavg", "batch": 15, "local_steps": 2}, {}, "the last one of a pass has 1"),
        # At a solution whole batches cancel each other: the lone row is the upload, however many steps it adds up.
        ({}, {"name": "fedavg", "batch": 15, "local_steps": 10}, {}, "the last one of a pass has 1"),
        ({}, {"name": "fedavg", "batch": 10, "local_epochs": 1}, {}, "has 6; set algorithm.even = true$"),
        ({}, {"name": "fedavg", "batch": 15, "local_steps": 1}, {}, "the last one of a pass has 1"),
        ({}, {"name": "diana", "batch": 15, "lr": 0.1}, {}, "the last one of a pass has 1"),
        ({"smallest_batch": 9}, {"name": "fedavg", "batch": 15, "even": True}, {}, "has 8; set algorithm.batch = 17$"),
        ({}, {"name": "scaffnew", "p": 0.1, "lr": 0.1, "batch": 14}, {}, "the last one of a pass has 2"),
        ({"smallest_batch": 1, "fewest_steps": 4}, ONE_ROW, {}, "at least 4 steps a round, the run may have 1"),
        ({"smallest_batch": 30}, {"name": "fedavg", "batch": "full"}, {}, "at least 30 rows, the run has 16"),
        ({"algorithms": ("scaffold",)}, None, {}, "its policy allows scaffold, the run is of fedavg"),
        ({"fewest_sites": 4}, None, {}, "sums of at least 4 sites, the run's may be 3"),
        ({"most_rounds": 9}, None, {}, "at most 9 rounds, the run has 10"),
        ({"noise": 1.0}, None, {}, "noise of at least 1, the run has 0"),
        ({"noise": 1.0}, None, {"clip": 1.0, "noise": 0.5}, "noise of at least 1, the run has 0.5"),
        ({"clip": 0.5}, None, {"clip": 1.0, "noise": 2.0}, "a clip of at most 0.5, the run has 1"),
        ({"fewest_steps": 7}, {"name": "fedavg", "batch": 8, "local_epochs": 3}, {}, "the run may have 6"),
        ({"fewest_steps": 2}, {"name": "scaffnew", "p": 0.1, "lr": 0.1}, {}, "the run may have 1"),
    ],
)
def test_terms_beyond_a_limit_are_refused_by_its_name(three, policy, method, changes, said) -> None:
    with pytest.raises(Refused, match=said):
        RunPolicy(**policy).check(terms_of(three, method, **changes), 16)


@pytest.mark.parametrize("roster", ["site-0", [], {}, ["site-1", "site-2"], ["site-0", "site-0", "x"], ["site-0", "x"]])
def test_a_sum_of_fewer_sites_than_the_terms_say_is_no_sum_of_these_terms(three, roster) -> None:
    """A site asks for three at least: a roster of two, or of one site twice, cannot have them."""
    plain = json.loads(terms_of(three).to_json())
    assert Terms.from_json(json.dumps(plain)).roster == tuple(three.clients)
    with pytest.raises(Refused, match=r"roster|cannot be read"):
        Terms.from_json(json.dumps({**plain, "roster": roster}))


def test_terms_within_all_limits_are_accepted(three) -> None:
    strict = RunPolicy(("fedavg",), 8, 4, 3, 10, 1.0, 1.0)
    strict.check(terms_of(three, clip=1.0, noise=1.0), 16)
    for method in ({"even": True}, {"replace": True}, {"name": "diana", "lr": 0.1, "even": True}):
        RunPolicy().check(terms_of(three, {"name": "fedavg", "batch": 15, **method}), 16)
    RunPolicy().check(terms_of(three, {"name": "fedavg", "batch": 20, "local_steps": 2}), 61)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (ONE_ROW, "its policy allows batches of at least 8 rows, the run has 1"),
        (ALL_BUT_ONE, "its policy allows batches of at least 8 rows, the last one of a pass has 1"),
    ],
)
def test_a_server_that_asks_for_single_rows_gets_none(three, loopback, caplog, method, said) -> None:
    """Without the policy this gives the server the row: with it no site answers."""
    grid: Loopback = loopback("careless")
    largest = int(np.argmax(three.train.sizes))
    rows = three.select([largest]).train.x
    method = {**method, "batch": method["batch"] % len(rows)}
    uploads: list[Any] = []
    grid.change = lambda site, number, reply: (uploads.append(reply), reply)[1] if number >= 0 else reply
    grid.serve(method, {"rounds": 1})
    sent = wire.as_arrays(uploads[largest].content.array_records["upload"])
    weights = next(array for array in sent.values() if array.ndim == 2)
    likeness = np.abs(rows @ weights) / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(weights, axis=0)
    assert likeness.max() > 1 - 1e-9  # the upload is a multiple of a row
    guarded: Loopback = loopback("guarded", policy=RunPolicy(fewest_sites=1))
    with pytest.raises(pf.PolyfedError, match="of 3 sites answered"):
        guarded.serve(method, {"rounds": 1}, patience=1)
    assert f"site 'site-{largest}' refused: round 1: {said}" in caplog.text


@pytest.mark.parametrize("run", ["../../x", "/etc/x", "..", "", "a/b", "x" * 65, ".hidden"])
def test_a_run_whose_name_is_a_path_writes_nothing(three, tmp_path, run) -> None:
    """What arrives is not what the server's own config allows: the site checks it again."""
    site = Site("site-0", three.select([0]), tmp_path / "deep" / "site", policy=RunPolicy(smallest_batch=1))
    terms = dataclasses.replace(terms_of(three), run=run).to_json()
    for kind, more in (("train", {"round": 0, "counted": -1}), ("evaluate", {"counted": -1})):
        content = RecordDict({"about": ConfigRecord({"terms": terms, **more})})
        about = site.answer(kind, content).config_records["about"]
        assert "the terms have a name that is none" in str(about["error"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_servers_config_has_no_paths_for_names(loopback) -> None:
    with pytest.raises(pf.PolyfedError, match=r"federation.run must be a name .*'../../x'"):
        loopback().serve({"name": "fedavg"}, {"rounds": 1}, name="../../x")


def test_the_first_terms_are_pinned_and_a_change_waits_for_the_operator(three, loopback, caplog) -> None:
    grid: Loopback = loopback(policy=RunPolicy(smallest_batch=1))
    grid.serve({"name": "fedavg", "batch": 8}, {"rounds": 1})
    grid.serve({"name": "fedavg", "batch": 8}, {"rounds": 1}, name="the same under another name")
    with pytest.raises(pf.PolyfedError, match="0 of 3 sites answered"):
        grid.serve({"name": "fedavg", "batch": 2}, {"rounds": 1}, name="other", patience=1)
    assert "`polyfed deploy accept` there accepts them" in caplog.text
    for site in three.clients:
        pinned = PinnedTerms(grid.folder / site)
        assert pinned.waiting() == ["method.hyper_parameters.batch: 8 -> 2"]
        pinned.accept(pinned.waiting())
    grid.serve({"name": "fedavg", "batch": 2}, {"rounds": 1}, name="other")


def test_the_command_shows_what_changed_and_accepts_it(three, tmp_path) -> None:
    make_project(tmp_path / "project", ["site-0", "b"], "127.0.0.1", example=True)
    folder: Path = tmp_path / "project" / "site-0"
    pinned, run = PinnedTerms(folder), CliRunner()
    assert "no terms wait" in run.invoke(app, ["deploy", "accept", str(folder)]).output
    pinned.check(terms_of(three))
    with pytest.raises(Refused):
        pinned.check(terms_of(three, rounds=500))
    shown = run.invoke(app, ["deploy", "accept", str(folder)], input="n\n").output
    assert "rounds: 10 -> 500" in shown
    assert "accepted" not in shown
    assert "accepted" in run.invoke(app, ["deploy", "accept", str(folder), "--yes"]).output
    pinned.check(terms_of(three, rounds=500))
    pinned.check(terms_of(three))


def test_terms_that_came_while_others_were_looked_at_are_not_accepted(three, tmp_path) -> None:
    pinned = PinnedTerms(tmp_path)
    pinned.check(terms_of(three))
    for rounds in (11, 9999):
        with pytest.raises(Refused):
            pinned.check(terms_of(three, rounds=rounds))
        shown = pinned.waiting() if rounds == 11 else ["rounds: 10 -> 11"]
        assert shown == ["rounds: 10 -> 11"]
    with pytest.raises(pf.PolyfedError, match="look again"):
        pinned.accept(shown)
    with pytest.raises(Refused):
        pinned.check(terms_of(three, rounds=9999))
    assert pinned.waiting() == ["rounds: 10 -> 9999"]


@pytest.mark.parametrize("damage", ["", "[{", "{}", "[1]", "\0\xff"])
def test_damaged_terms_are_not_taken_for_none(three, tmp_path, damage) -> None:
    """Other terms would be pinned in their place, and nobody would be asked."""
    make_project(tmp_path / "project", ["site-0", "b"], "127.0.0.1", example=True)
    folder: Path = tmp_path / "project" / "site-0"
    pinned = PinnedTerms(folder)
    pinned.check(terms_of(three))
    for path in (pinned.proposed, pinned.pinned):
        path.write_text(damage)
        with pytest.raises(pf.PolyfedError, match=f"{path.name}: .*; its backup"):
            pinned.check(terms_of(three, rounds=500))
        with pytest.raises(pf.PolyfedError, match=f"{path.name}: "):
            pinned.accept(pinned.waiting())
        assert path.read_text() == damage
        path.unlink()
        pinned.check(terms_of(three))


def test_names_in_terms_that_wait_say_nothing_to_the_operators_terminal(tmp_path) -> None:
    pinned = PinnedTerms(tmp_path)
    pinned.check_tables(TableSettings())
    with pytest.raises(Refused):
        pinned.check_tables(TableSettings(columns={"x\x1b[2J\nage": {"missing": ["40"]}}))
    assert pinned.waiting() == ['tables.columns.x?[2J?age.missing: nothing -> ["40"]']
    with pytest.raises(Refused):
        pinned.check_tables(TableSettings(features=(*map(str, range(5000)), "the last")))
    assert pinned.waiting()[0].endswith('"4999", "the last"]')


def test_a_mistake_in_a_policy_is_named(tmp_path) -> None:
    make_project(tmp_path / "project", ["a", "b"], "127.0.0.1", example=True)
    path = tmp_path / "project" / "a" / "site.toml"
    text = path.read_text()
    assert site_settings(path).policy == RunPolicy(fewest_sites=1, most_rounds=1000, pinned_sites=True)
    for old, new, said in (
        ("smallest_batch = 8", "smallest_batch = 0", "policy.smallest_batch must be a whole number above 0"),
        ("most_rounds", "most_round", "unknown key 'most_round'"),
        ("algorithms = []", 'algorithms = ["fedavgg"]', "unknown algorithm 'fedavgg'"),
        ('changes = "ask"', 'changes = "no"', "policy.changes must be 'ask' or 'allow'"),
        ("noise = 0.0", "noise = -1", "policy.noise must be a number, at least 0"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(pf.PolyfedError, match=said):
            site_settings(path)


def test_a_site_answers_a_message_that_is_none_with_a_refusal(three, tmp_path) -> None:
    site = Site("site-0", three.select([0]), tmp_path)
    for kind in ("query", "train", "evaluate", "x"):
        for about in ({}, {"terms": "{"}, {"request": "[]"}, {"secure": "3"}, {"terms": json.dumps({"run": 1})}):
            reply = site.answer(kind, RecordDict({"about": ConfigRecord(about)}))  # pyright: ignore[reportArgumentType]
            assert reply.config_records["about"]["error"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"problem": {"loss": "softmax", "model": "mlp", "hidden": [10**6, 10**6]}},
            "a model of 1000009000003 numbers",
        ),
        ({"problem": {"loss": "softmax", "model": "mlp", "hidden": [10**9]}}, "a model of 8000000003 numbers"),
        ({"method": {"name": "fedavg", "batch": 10**9, "replace": True}}, "a batch of 4000000000 numbers"),
    ],
)
def test_terms_that_would_take_all_memory_are_refused_before_any_is_taken(three, tmp_path, changes, said) -> None:
    site = Site("site-0", three.select([0]), tmp_path, policy=RunPolicy(smallest_batch=1, fewest_sites=1))
    method = changes.pop("method", None)
    about: dict[str, Any] = {"terms": terms_of(three, method, **changes).to_json(), "round": 0, "counted": -1}
    reply = site.answer("train", RecordDict({"about": ConfigRecord(about)}))
    assert said in str(reply.config_records["about"]["error"])
