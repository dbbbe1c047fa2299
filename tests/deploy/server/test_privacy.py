"""Differential privacy across sites: the simulator's numbers with its seed, and secrets without one."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.deploy.protocol.terms import DeployedRun
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.server.privacy import PrivacyKeeper
from polyfed.deploy.settings import server_settings
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.accounting import Accountant
from polyfed.studies.config import algorithm_from
from tests.conftest import few
from tests.deploy.expected import simulated, small
from tests.deploy.loopback import PROBLEM, Loopback

pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"weighting": "uniform"},
    "scaffold": {},
    "apfl": {},
    "diana": {"alpha": 0.5, "beta": [0.1, 0.2, 0.3], "compressor": {"name": "rand_k", "k": [3, 4, 5]}},
    "scaffnew": {},
    "qfedavg": {},
}
"""One part and two, with a state and without, compressed, around the model, and a quotient of sums."""


@pytest.mark.parametrize("name", few(METHODS, "scaffold"))
def test_a_private_deployed_run_equals_the_simulated_one(three, loopback, name) -> None:
    grid, method = loopback(), {**small(name), **METHODS[name]}
    section: dict[str, Any] = {"clip": 0.05, "noise": 0.5, "delta": 0.01}
    grid.serve(method, {"participation": 2, "rounds": 3}, privacy={**section, "seed": 0})
    rule = pf.Privacy(**section, study=True)
    expected = simulated(three, method, 3, participation=2, privacy=rule)
    grid.assert_equal(expected)
    told = [json.loads(line) for line in (grid.folder / "server/runs/study/progress.jsonl").read_text().splitlines()]
    spent = Accountant(rule, sampling(2, 3))
    assert [row["epsilon"] for row in told] == [spent.epsilon(rounds) for rounds in (1, 2, 3)]
    if name == "diana":  # compressed uploads travel as their code still: values alone, and Flower's header of 128 bytes
        sizes = [3 + three.clients.index(site) for row in told for site in row["sites"]]
        assert told[-1]["bits_up"] == sum(2 * (8 * 128 + 64 * k) for k in sizes)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def coordinated(grid: Loopback, folder: Any, privacy: pf.Privacy, rounds: int = 1) -> Coordinator:
    method = algorithm_from({**small("fedavg"), "weighting": "uniform", "lr": 1e-12})
    deployed = DeployedRun("study", tuple(grid.names), PROBLEM, method, rounds, dtype="float64", privacy=privacy)
    run = Coordinator(deployed, grid, folder, FederationRules(poll=0.01, deadline=0.2, minimum=2, patience=1))
    run.run()
    return run


def test_without_a_seed_the_noise_is_the_systems(loopback, tmp_path) -> None:
    rule = pf.Privacy(clip=0.5, noise=2.0, delta=0.01)
    first, second = (flat(coordinated(loopback(name), tmp_path / name, rule).server.params) for name in ("a", "b"))
    assert np.linalg.norm(first - second) > 0.1
    keeper, like = PrivacyKeeper(rule, sampling(1.0, 3)), {"w": np.zeros((100, 50)), "b": np.zeros(50)}
    drawn = keeper.privacy.secret_noise(like)
    whole = flat(drawn)
    assert abs(np.std(whole) - 1.0) < 4 / np.sqrt(2 * whole.size)
    assert abs(np.mean(whole)) < 4 / np.sqrt(whole.size)
    assert np.unique(whole).size == whole.size


def test_who_takes_part_is_drawn_by_lot() -> None:
    rule = pf.Privacy(clip=0.5, noise=2.0, delta=0.01)
    fixed, by_chance = PrivacyKeeper(rule, sampling(2, 12)), PrivacyKeeper(rule, sampling(pf.Bernoulli(0.5), 12))
    cohorts = {tuple(np.asarray(fixed.secret_cohort()).tolist()) for _ in range(40)}
    assert len(cohorts) > 10
    assert all(len(set(cohort)) == 2 for cohort in cohorts)
    assert len({np.asarray(by_chance.secret_cohort()).size for _ in range(60)}) > 2
    assert PrivacyKeeper(rule, sampling(1.0, 12)).secret_cohort() is None


def test_an_upload_that_was_not_clipped_is_refused_by_name(loopback, tmp_path, caplog) -> None:
    grid: Loopback = loopback()

    def longer(site: str, number: int, reply: Answer) -> Answer:
        if site == grid.names[0] and "upload" in reply.content.array_records:
            record = reply.content.array_records["upload"]
            for name, array in list(record.items()):
                record[name] = type(array)(array.numpy() + 1.0)
        return reply

    grid.change = longer
    with caplog.at_level("WARNING"):
        run = coordinated(grid, tmp_path / "run", pf.Privacy(clip=0.5, noise=2.0, delta=0.01))
    assert run.ledger.refused == {grid.names[0]: 1}
    assert "its upload is longer than privacy.clip = 0.5" in caplog.text


def test_a_site_that_lets_its_metrics_leave_does_not_take_part(loopback, tmp_path) -> None:
    with pytest.raises(pf.PolyfedError, match="lets its metrics leave, which the run's privacy does not cover"):
        coordinated(loopback(metrics=True), tmp_path / "run", pf.Privacy(clip=0.5, noise=2.0, delta=0.01))


def test_mistakes_in_the_section_are_named() -> None:
    sections = {
        "federation": {"sites": ["a", "b"]},
        "problem": PROBLEM,
        "algorithm": {"name": "fedavg"},
        "privacy": {"clip": 1.0, "noice": 1.0},
    }
    with pytest.raises(pf.PolyfedError, match=r"server.toml: unknown key privacy.noice; did you mean 'noise'"):
        server_settings(sections, "server.toml")
