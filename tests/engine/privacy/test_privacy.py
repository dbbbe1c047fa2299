"""Differential privacy: what one client can change, the noise, the privacy spent, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib import util
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import polyfed as pf
from polyfed import algorithms
from polyfed.algorithms import REGISTRY
from polyfed.algorithms.contract import Algorithm, Total, Upload
from polyfed.cli.progress import terminal_table
from polyfed.engine.loop import PlannedRun
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.accounting import Accountant
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.report import comparison_table, write_report
from polyfed.report.methods import group
from polyfed.report.sections import cost_table
from polyfed.studies.config import algorithm_from, make_config
from polyfed.studies.experiment import Options, run
from tests.conftest import SMALL, each_method, few, known, unequal_clients

dp_accounting = pytest.importorskip("dp_accounting", reason="needs dp-accounting: pip install 'polyfed[privacy]'")
FEDAVG = algorithms.FedAvg(lr=0.5, local_steps=2, batch=4, weighting="uniform")
SCAFFNEW = algorithms.Scaffnew(lr=0.1, p=0.5)
L2GD = algorithms.L2GD(lr=0.1, p=0.5)


def advanced(problem: pf.Problem, method: Algorithm, rounds: int = 1, **options: Any) -> Simulation:
    simulation = Simulation(problem, method, dtype="float64", **options)
    simulation.prepare()
    simulation.advance(rounds)
    return simulation


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


# What one client can change.


def test_one_client_more_moves_the_sum_by_the_clip_at_most() -> None:
    """Uploads of several parts, long and short."""
    rule, rng = pf.Privacy(clip=0.7, noise=0.0), np.random.default_rng(0)
    like = {"w": jnp.zeros((3, 2), jnp.float32), "b": jnp.zeros(2)}
    sent = []
    for length in (0.0, 0.3, 0.69, 5.0, 1e4):
        way = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), like)
        whole = float(np.linalg.norm(flat(way)))
        values = jax.tree.map(lambda leaf, s=length / whole: s * leaf, way)
        found = rule.clipped(FEDAVG, Upload(values)).values
        moved = flat(found)
        assert np.linalg.norm(moved) <= 0.7 * (1 + 1e-5)
        np.testing.assert_allclose(moved, min(1, 0.7 / max(length, 1e-9)) * length / whole * flat(way), atol=1e-5)
        sent.append(found)

    def released(uploads: list[Any]) -> np.ndarray:
        values = jax.tree.map(lambda *leaves: sum(leaves), *uploads)
        total = Total(values, jnp.float32(len(uploads)), jnp.int32(len(uploads)), jnp.int32(9))
        found = rule.released(total, 4.5, jax.random.key(0))
        assert float(found.count) == float(found.weight) == 4.5
        return flat(found.values)

    for place in range(len(sent)):
        without = released(sent[:place] + sent[place + 1 :])
        assert np.linalg.norm(released(sent) - without) <= 0.7 * (1 + 1e-4)


@pytest.mark.parametrize("method", few([FEDAVG, SCAFFNEW], FEDAVG), ids=["fedavg", "scaffnew"])
def test_another_client_in_ones_place_moves_the_model_by_twice_the_clip_over_the_clients(problem, method) -> None:
    clients = unequal_clients()
    x, y = clients["site-1"]["train"]
    clients["site-1"]["train"] = (50 * x, (y + 1) % 3)
    other = pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)

    def moved(clip: float) -> float:
        rule = pf.Privacy(clip=clip, noise=0.0)
        here, there = (advanced(p, method, privacy=rule).global_params for p in (problem, other))
        return float(np.linalg.norm(flat(here) - flat(there)))

    assert moved(0.01) <= 2 * 0.01 / 6 * (1 + 1e-9)
    assert moved(float("inf")) > 10 * 2 * 0.01 / 6


def test_noise_on_the_sum_is_clip_times_noise_wherever_states_and_devices_are() -> None:
    """A client whose rows are all zero is at its optimum: only the noise moves anything."""
    rows = [(np.zeros((4, 900)), np.zeros(4)) for _ in range(5)]
    quiet = pf.Problem(pf.Federation.from_arrays(rows), pf.models.linear(bias=False), "squared")
    rule = pf.Privacy(clip=0.5, noise=3.0, study=True)
    found = advanced(quiet, FEDAVG, seed=3, privacy=rule, participation=0.8).global_params
    noise = flat(found) * 4  # the sum of four
    assert noise.size == 900
    assert abs(np.std(noise) / 1.5 - 1) < 4 / np.sqrt(2 * 900)
    assert abs(np.mean(noise)) < 4 * 1.5 / np.sqrt(900)
    stores: list[dict[str, Any]] = [{"store": "host"}, {"devices": 1}]
    for options in stores:
        same = advanced(quiet, FEDAVG, seed=3, privacy=rule, participation=0.8, **options).global_params
        np.testing.assert_array_equal(flat(same), flat(found))
    seeded = dataclasses.replace(rule, seed=3, study=False)
    other = advanced(quiet, FEDAVG, seed=4, privacy=seeded, participation=0.8).global_params
    np.testing.assert_array_equal(flat(other), flat(found))


@pytest.mark.parametrize("store", ["device", "host"])
def test_noise_of_the_system_is_as_long_and_never_the_same(store: Any) -> None:
    rows = [(np.zeros((4, 900)), np.zeros(4)) for _ in range(5)]
    quiet = pf.Problem(pf.Federation.from_arrays(rows), pf.models.linear(bias=False), "squared")
    rule = pf.Privacy(clip=0.5, noise=3.0)
    first, second = (advanced(quiet, FEDAVG, 2, privacy=rule, store=store, devices=2) for _ in range(2))
    for ended in (first, second):  # two rounds of noise on the sum of five
        assert abs(np.std(flat(ended.global_params)) * 5 / (1.5 * np.sqrt(2)) - 1) < 4 / np.sqrt(2 * 900)
    apart = np.corrcoef(flat(first.global_params), flat(second.global_params))[0, 1]
    assert abs(apart) < 4 / np.sqrt(900)
    assert first.spent is not None
    assert first.spent["noise_from"] == "the operating system"


@pytest.mark.full
def test_several_seeds_have_noise_of_their_own(problem) -> None:
    rule = pf.Privacy(clip=0.1, noise=1.0, delta=0.01)
    runs = [PlannedRun(problem, FEDAVG, 0), PlannedRun(problem, FEDAVG, 0)]
    one, two = simulate_all(runs, rounds=2, privacy=rule)
    assert not np.any(flat(one.global_params) == flat(two.global_params))
    again = dataclasses.replace(rule, study=True)
    one, two = simulate_all(runs, rounds=2, privacy=again)
    np.testing.assert_array_equal(flat(one.global_params), flat(two.global_params))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "the operating system"),
        ({"study": True}, "the run's seed, for study"),
        ({"seed": 1}, "privacy.seed, for study"),
        ({"noise": 0.0}, "nowhere: there is none"),
    ],
)
def test_a_summary_says_where_the_noise_comes_from(options: dict[str, Any], words: str) -> None:
    rule = pf.Privacy(**{"clip": 1.0, "noise": 1.0, "delta": 0.001, **options})
    assert Accountant(rule, sampling(1.0, 6)).facts(1)["noise_from"] == words


@pytest.mark.parametrize(
    ("method", "participation"), few([(FEDAVG, 4), (L2GD, 1.0)], (FEDAVG, 4)), ids=["fedavg", "l2gd"]
)
def test_without_a_bound_and_without_noise_a_run_is_the_plain_one(problem, method, participation) -> None:
    none = pf.Privacy(clip=float("inf"), noise=0.0)
    plain = advanced(problem, method, 3, participation=participation)
    found = advanced(problem, method, 3, participation=participation, privacy=none)
    np.testing.assert_array_equal(flat(found.server), flat(plain.server))
    assert found.spent is not None
    assert found.spent["epsilon"] == float("inf")
    assert plain.spent is None


def test_a_private_run_goes_on_as_if_it_had_not_stopped(problem, tmp_path) -> None:
    options: dict[str, Any] = {
        "participation": pf.Bernoulli(0.5),
        "privacy": pf.Privacy(clip=0.1, noise=1.0, delta=0.01, study=True),
        "checkpoint": tmp_path,
    }
    whole = pf.simulate(problem, FEDAVG, rounds=4, **options)
    pf.simulate(problem, FEDAVG, rounds=2, **options)
    found = pf.simulate(problem, FEDAVG, rounds=4, resume=tmp_path, **options)
    np.testing.assert_array_equal(flat(found.global_params), flat(whole.global_params))
    spent = [row["epsilon"] for row in found.rows]
    assert spent == [row["epsilon"] for row in whole.rows]
    assert spent[0] == 0
    assert all(a < b for a, b in pairwise(spent))
    options["privacy"] = pf.Privacy(clip=0.2, noise=1.0, delta=0.01)
    with pytest.raises(pf.PolyfedError, match="privacy"):
        pf.simulate(problem, FEDAVG, rounds=4, resume=tmp_path, **options)


@pytest.mark.parametrize("name", each_method(sorted(REGISTRY)))
def test_every_algorithm_sends_one_bounded_vector_with_the_weight_one(problem, name) -> None:
    method = algorithm_from({"name": name, **known(name, {**SMALL, "weighting": "uniform"})})
    found = Simulation(problem, method, privacy=pf.Privacy(clip=1.0, noise=1.0))
    assert found.facts.uploads == (name != "local")
    assert found.spent is not None
    assert found.spent["epsilon"] == 0


# The privacy spent.


def test_full_participation_spends_what_the_gaussian_mechanism_does() -> None:
    """The exact tradeoff of Balle and Wang 2018: T rounds of noise z are one of noise z / sqrt(T)."""
    for noise, rounds in ((5.0, 1), (5.0, 40), (1.0, 3)):
        spent = Accountant(pf.Privacy(1.0, noise, delta=1e-6), sampling(1.0, 50)).epsilon(rounds)
        mu = np.sqrt(rounds) / noise
        delta = norm.cdf(mu / 2 - spent / mu) - np.exp(spent) * norm.cdf(-mu / 2 - spent / mu)
        assert abs(delta / 1e-6 - 1) < 1e-3


def test_sampled_rounds_are_counted_by_how_they_are_sampled() -> None:
    rule = pf.Privacy(1.0, 1.5, delta=1e-5)
    by_chance, fixed = (Accountant(rule, sampling(given, 200)) for given in (pf.Bernoulli(0.1), 20))
    gaussian = dp_accounting.GaussianDpEvent
    bound = dp_accounting.rdp.RdpAccountant()
    bound.compose(dp_accounting.PoissonSampledDpEvent(0.1, gaussian(1.5)), 50)
    assert 0.7 * bound.get_epsilon(1e-5) < by_chance.epsilon(50) < bound.get_epsilon(1e-5)
    exact = dp_accounting.pld.PLDAccountant().compose(dp_accounting.PoissonSampledDpEvent(0.1, gaussian(1.5)), 50)
    assert 0 <= by_chance.epsilon(50) - exact.get_epsilon(1e-5) < 1e-3
    assert (by_chance.neighbours, fixed.neighbours) == ("add or remove one client", "replace one client")
    all_in = Accountant(rule, sampling(1.0, 200))
    assert by_chance.epsilon(50) < all_in.epsilon(50)


FIXED = [(500, 50, 1.0, 200), (200, 20, 1.5, 50), (500, 50, 4.0, 200), (10_000, 100, 1.0, 1000), (100, 10, 0.3, 20)]
"""Clients, cohort, noise, rounds."""


def renyi(clients: int, cohort: int, noise: float, rounds: int, delta: float) -> float:
    """Wang, Balle, Kasiviswanathan 2019, as dp-accounting has it."""
    replace = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(clients, cohort, dp_accounting.GaussianDpEvent(noise / 2))
    return float(replace.compose(event, rounds).get_epsilon(delta))


@pytest.mark.full
@pytest.mark.parametrize(("clients", "cohort", "noise", "rounds"), FIXED)
def test_cohorts_of_a_fixed_size_spend_less_than_the_renyi_bound_and_no_less_than_an_attack_finds(
    clients: int, cohort: int, noise: float, rounds: int
) -> None:
    """The attack: all others upload -C, and the client C or -C; rounds of either direction, and of both in turn."""
    spent = Accountant(pf.Privacy(1.0, noise, 1e-5), sampling(cohort, clients)).epsilon(rounds)
    assert spent < renyi(clients, cohort, noise, rounds, 1e-5)
    one = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise / 2, sampling_prob=cohort / clients, value_discretization_interval=1e-3
    )
    here, there = one._pmf_remove, one._pmf_add
    halves = here.self_compose(rounds // 2).compose(there.self_compose(rounds - rounds // 2))
    found = [here.self_compose(rounds), there.self_compose(rounds), halves]
    most = max(pmf.get_epsilon_for_delta(1e-5) for pmf in found)
    assert most - 1e-3 * rounds <= spent
    assert spent < 1.2 * most


def test_one_round_of_a_fixed_size_is_exact() -> None:
    """Two federations of two clients, of whom one takes part: (C, -C) and (-C, -C). Their outcomes, integrated."""
    x = np.linspace(-30, 30, 600_001)
    here, there = 0.5 * norm.pdf(x, 1, 1.5) + 0.5 * norm.pdf(x, -1, 1.5), norm.pdf(x, -1, 1.5)
    accountant = Accountant(pf.Privacy(1.0, 1.5, 1e-3), sampling(1, 2))
    epsilon = accountant.epsilon(1)
    deltas = [np.sum(np.maximum(a - np.exp(epsilon) * b, 0)) * (x[1] - x[0]) for a, b in ((here, there), (there, here))]
    assert max(deltas) == pytest.approx(1e-3, rel=5e-3)
    assert max(deltas) <= 1e-3 * (1 + 1e-6)


def test_a_cohort_of_nearly_all_spends_what_all_do_under_the_same_relation() -> None:
    nearly = Accountant(pf.Privacy(1.0, 3.0, 1e-6), sampling(9_999, 10_000)).epsilon(10)
    whole = dp_accounting.get_epsilon_gaussian(1.5 / np.sqrt(10), 1e-6)
    assert nearly == pytest.approx(whole, rel=2e-3)


def test_little_noise_is_counted_too() -> None:
    spent = Accountant(pf.Privacy(1.0, 0.02, 1e-5), sampling(10, 100)).epsilon(3)
    assert 1000 < spent < float("inf")


# Configs and what people see.

CONFIG: dict[str, Any] = {
    "data": {"source": "synthetic", "clients": 6},
    "algorithm": {"name": "fedavg", "weighting": "uniform", "local_steps": 2},
    "run": {"rounds": 2, "participation": {"probability": 0.5}, "alone": False, "finetune_steps": 0},
    "privacy": {"clip": 0.1, "noise": 1.0, "delta": 0.01},
}


def test_a_run_tells_the_privacy_that_it_spent(tmp_path) -> None:
    [record] = run(make_config(CONFIG), tmp_path, Options())
    expected = Accountant(pf.Privacy(0.1, 1.0, 0.01), sampling(pf.Bernoulli(0.5), 6)).epsilon(2)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["epsilon"] == summary["privacy"]["epsilon"] == pytest.approx(expected)
    assert summary["privacy"]["neighbours"] == "add or remove one client"
    assert summary["privacy"]["noise_from"] == "the operating system"
    assert record.history[-1]["epsilon"] == pytest.approx(expected)
    assert record.config["privacy"] == {"clip": 0.1, "noise": 1.0, "delta": 0.01, "study": False}
    table = comparison_table([record])
    assert f"{expected:.2f}" in table.rows[0]
    assert any("epsilon" in str(column.header) for column in terminal_table(table, 120).columns)
    page = write_report([record], tmp_path / "report.html", title="private").read_text()
    assert f"epsilon = {expected:.2f} at delta = 0.01 (add or remove one client)" in page
    shown = cost_table(group([record]))
    heads = re.findall(r'<th scope="col">(.*?)</th>', shown)
    cells = ["", *re.findall(r"<td[^>]*>(.*?)</td>", shown)]  # the first column is the method's
    assert len(heads) == len(cells)
    assert dict(zip(heads, cells, strict=True))["Epsilon"] == f"{expected:.2f}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["privacy.clipp=1"], "unknown key privacy.clipp"),
        (["privacy.clip=0"], "privacy.clip must be a number above 0, found 0"),
        (["privacy.noise=-1"], "privacy.noise must be a number, at least 0, found -1"),
        (["privacy.noise='much'"], "privacy.noise must be a number, at least 0, found 'much'"),
        (["privacy.clip=inf"], "privacy.clip must be finite where there is noise"),
        (["privacy.delta=1.0"], "privacy.delta must be below 1"),
        (["privacy.seed=-3"], "privacy.seed must be a whole number"),
        (["tune.budget=3"], r"\[tune\] does not go with \[privacy\]"),
    ],
)
def test_mistakes_in_the_section_are_named(changes, said) -> None:
    with pytest.raises(pf.PolyfedError, match=said):
        make_config(CONFIG, changes=changes)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(pf.PolyfedError, match=r"privacy.noise is missing"):
        make_config(CONFIG | {"privacy": {"clip": 1.0}})


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (algorithms.FedAvg(), "fedavg: weighting = 'size' weighs clients by what privacy does not cover"),
        (algorithms.FedBC(), "fedbc: weighting = 'multiplier' weighs clients"),
        (algorithms.FLIX(alpha=0.5), "flix: lr must be given.*nothing is measured on the clients' rows"),
        (algorithms.FLIX(alpha="inverse_size", lr=0.1), "flix: alpha = 'inverse_size' follows from all clients' data"),
        (algorithms.Scafflix(lr=0.1, p=0.5, alpha=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), "scafflix: its clients' weights"),
        (algorithms.FLIX(lr=0.1, start="average", smoothness=1.0), "flix: its clients' weights differ"),
    ],
)
def test_what_would_leave_a_client_unprotected_is_refused_by_name(problem, method, said) -> None:
    with pytest.raises(pf.PolyfedError, match=said):
        Simulation(problem, method, privacy=pf.Privacy(clip=1.0, noise=1.0))


def test_a_delta_that_protects_nobody_is_a_warning(problem) -> None:
    with pytest.warns(UserWarning, match=r"privacy.delta = 0.2 is not below 1 / 6 clients"):
        Simulation(problem, FEDAVG, privacy=pf.Privacy(clip=1.0, noise=1.0, delta=0.2))


def test_without_the_accountant_the_start_says_what_to_install(problem, monkeypatch) -> None:
    real = util.find_spec
    monkeypatch.setattr(
        "polyfed.engine.privacy.accounting.find_spec", lambda name: None if name == "dp_accounting" else real(name)
    )
    with pytest.raises(pf.PolyfedError, match=r"dp-accounting: pip install 'polyfed\[privacy\]'"):
        Simulation(problem, FEDAVG, privacy=pf.Privacy(clip=1.0, noise=1.0))
