"""What a single upload tells of a single row, by how passes are cut into batches; and what a site's policy refuses.

The rows are made so that zero is the solution: whole passes cancel, and an upload is what they leave over. Features are
many, so that a sum over eight rows is like none of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

import polyfed as pf
from polyfed.algorithms import Local
from polyfed.algorithms.shared.local_work import Steps
from polyfed.deploy.project import make_project
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.terms import Terms, method_to_json
from polyfed.deploy.settings import read_toml, site_settings
from polyfed.deploy.site.local_work import LocalWork
from polyfed.deploy.site.policy import RunPolicy
from polyfed.deploy.site.site import Site, SitePolicy
from polyfed.engine.measure import FineTune
from polyfed.studies.advice.contenders import ALONE, contenders
from polyfed.studies.config import algorithm_from
from polyfed.studies.newcomers.fitting import DataKind

FEATURES, ROUNDS = 30, 40


def site(rows: int) -> pf.Federation:
    """Rows whose gradients at zero, -y x / 2 or -y x, add up to nothing."""
    draws = np.random.default_rng(rows)
    y = np.where(np.arange(rows) % 2, 1.0, -1.0)
    x = draws.normal(size=(rows, FEATURES))
    return pf.Federation.from_arrays({"a": (x - y[:, None] * np.mean(y[:, None] * x, axis=0), y)}, test=0, validation=0)


def terms(federation: pf.Federation, method: dict[str, Any], loss: str = "logistic") -> Terms:
    rows, problem = len(federation.train.y), {"loss": loss, "bias": False}
    about = (problem, DataKind.of(federation, loss), rows, 0, None, "float64")
    made = algorithm_from(method)
    if made.resolve is not None:
        made = made.resolve(pf.Problem(federation, pf.models.linear(bias=False), loss, l2=0.01))
    return Terms("study", "a", made, *about, rounds=10, fewest=2, roster=("a", "b"))


def likeness(federation: pf.Federation, given: Terms) -> np.ndarray:
    """The cosine between each round's upload at zero and the gradient that is most like it, of one row."""
    work = LocalWork(federation, given)
    state, x = work.prepared(), federation.train.x
    uploads = [work.local(work.broadcast, state, number).sent.values for number in range(ROUNDS)]
    vectors = np.array([np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(upload)]) for upload in uploads])
    lengths = np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(x, axis=1)
    return np.max(np.abs(vectors @ x.T) / lengths, axis=1)


def small_steps(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "lr": 1e-9, "batch": 20, **options}


SINGLED_OUT = [
    (21, small_steps("fedavg", local_steps=2), "the last one of a pass has 1; set algorithm.even = true"),
    (21, small_steps("fedavg", local_epochs=1), "the last one of a pass has 1; set algorithm.even = true"),
    # All rows but one: with those of the one, all gradients cancel.
    (21, small_steps("fedavg", local_steps=1), "the last one of a pass has 1; set algorithm.even = true"),
    (41, small_steps("fedavg", local_steps=2), "the last one of a pass has 1; set algorithm.even = true"),
    (9, {"name": "dcgd", "batch": 8, "alpha": 1.0, "lr": 0.1}, "set algorithm.even = true and algorithm.batch = 15"),
    (21, small_steps("fomaml", inner_steps=1, inner_lr=1e-9), "the last one of a pass has 1; set algorithm.even"),
]


@pytest.mark.parametrize(("rows", "method", "said"), SINGLED_OUT)
def test_what_singles_out_a_row_is_refused(rows: int, method: dict[str, Any], said: str) -> None:
    federation = site(rows)
    given = terms(federation, method)
    assert np.median(likeness(federation, given)) > 1 - 1e-6
    with pytest.raises(Refused, match=said):
        RunPolicy().check(given, rows)


ALLOWED = [
    (21, small_steps("fedavg", local_steps=2)),
    (21, small_steps("fedavg", local_steps=1)),
    (17, small_steps("fedavg", local_steps=3, batch=16)),
    (41, small_steps("fedavg", local_epochs=1)),
    (141, small_steps("fedavg", local_steps=8)),
    (21, {"name": "dcgd", "batch": 20, "alpha": 1.0, "lr": 0.1}),
    (21, small_steps("fomaml", inner_steps=1, inner_lr=1e-9)),
    (21, small_steps("perfedavg", local_steps=3, inner_lr=0.01)),
    (21, {"name": "scaffnew", "lr": 1e-9, "p": 0.3, "batch": 20}),
]


@pytest.mark.parametrize(("rows", "method"), ALLOWED)
def test_even_batches_single_out_nobody(rows: int, method: dict[str, Any]) -> None:
    """A sum over eight rows of many has a cosine of 1 / sqrt(8) = 0.35 with each, and of 0.5 to 0.6 with the likest."""
    federation = site(rows)
    given = terms(federation, {**method, "even": True})
    found = likeness(federation, given)
    assert np.median(found) < 0.7
    assert np.max(found) < 0.9
    RunPolicy().check(given, rows)


def test_a_local_model_that_is_a_row_is_in_no_upload() -> None:
    """It ends with a step on one row. Where features are alike, the gradient of all rows there is that row, too."""
    federation = site(4000)
    options = {"alpha": 0.5, "lr": 0.1, "plm_epochs": 1, "plm_lr": 1.0, "plm_batch": 3999}
    given = terms(federation, {"name": "dcgd", **options}, "squared")
    assert np.min(likeness(federation, given)) > 0.98
    even = terms(federation, {"name": "dcgd", **options, "even": True}, "squared")
    assert np.max(likeness(federation, even)) < 0.75
    said = "those of local models included, the last one of a pass has 1; set algorithm.even = true"
    with pytest.raises(Refused, match=said):
        RunPolicy().check(given, 4000)
    RunPolicy().check(even, 4000)
    for method in ({"plm_batch": "full"}, {"plm_epochs": None}, {"alpha": 1.0}):
        RunPolicy().check(terms(federation, {"name": "dcgd", **options, **method}, "squared"), 4000)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("after", ["finetune", "alone"])
def test_a_model_that_leaves_a_site_was_not_moved_by_one_row(tmp_path, allowed: bool, after: str) -> None:
    federation = site(21)
    given = terms(federation, {"name": "fedavg", "batch": "full"})
    if after == "finetune":
        given = dataclasses.replace(given, finetune=FineTune(1, 0.1, 1))
    else:
        given = dataclasses.replace(given, deploy="alone", alone=method_to_json(Local(batch=1, local_steps=1)))
    here = Site("a", federation, tmp_path, SitePolicy(model=allowed))
    content = RecordDict({"about": ConfigRecord({"terms": given.to_json(), "round": -1, "counted": -1})})
    said = str(here.answer("evaluate", content).config_records["about"].get("error"))
    assert ("at least 8 rows where its own model leaves it, deploy." in said) == allowed


@pytest.mark.parametrize("rows", [8, 9, 15])
def test_draws_of_few_rows_leave_out_one_too_often(rows: int) -> None:
    """Of 9 rows, 8 draws are 8 different ones in 9! / 9^8 = 0.8% of all cases."""
    federation = site(rows)
    draws = {"name": "fedavg", "lr": 0.1, "batch": 8, "replace": True}
    with pytest.raises(Refused, match=r"with replacement of 16 at least: .* set algorithm.even = true in place of"):
        RunPolicy().check(terms(federation, draws), rows)
    RunPolicy().check(terms(federation, draws), 16)


def test_no_site_is_refused_for_its_number_of_rows(tmp_path) -> None:
    """Under what an advice tries, and what a new project does; without `even` a third of the sites could be."""
    make_project(tmp_path / "project", ["a", "b"], "127.0.0.1")
    template = read_toml(tmp_path / "project" / "server" / "server.toml")["algorithm"]
    tried = [way.candidates[0].algorithm for way in contenders() if way.name != ALONE]
    federation, allowed, policy = site(8), [], site_settings(tmp_path / "project" / "a").policy
    methods: list[Any] = [algorithm_from(template), algorithm_from({**template, "batch": 20}), *tried]
    for method in methods:
        given = dataclasses.replace(terms(federation, {"name": "fedavg"}), method=method)
        assert isinstance(method, Steps)
        usual = dataclasses.replace(given, method=dataclasses.replace(method, even=False))
        allowed.append([_allows(policy, made, rows) for made in (given, usual) for rows in range(8, 401)])
    even, usual = np.array(allowed).reshape(len(allowed), 2, -1).mean(axis=2).T
    np.testing.assert_array_equal(even, 1)
    np.testing.assert_array_less(usual[1:], 0.85)


def _allows(policy: RunPolicy, given: Terms, rows: int) -> bool:
    try:
        policy.check(given, rows)
    except Refused:
        return False
    return True


@pytest.mark.parametrize("least", [1, 2, 8, 13])
def test_the_remedy_that_is_named_is_one(least: int) -> None:
    federation, policy = site(8), RunPolicy(smallest_batch=least)
    for batch in range(least, 3 * least + 5):
        for rows in range(least, 80):
            method = {"name": "fedavg", "batch": batch}
            try:
                policy.check(terms(federation, method), rows)
            except Refused as refusal:
                ways = str(refusal).split("; set ")[1].split(" and ")
                for way in ways:
                    name, value = way.removeprefix("algorithm.").split(" = ")
                    method[name] = value == "true" or int(value)
                policy.check(terms(federation, method), rows)
