"""Runs whose server sees single uploads, and runs under attack: one round in NumPy, devices, checkpoints, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import norm, trim_mean

import polyfed as pf
from polyfed import algorithms
from polyfed.algorithms import REGISTRY
from polyfed.core.errors import PolyfedError
from polyfed.engine.loop import PlannedRun
from polyfed.engine.robust.attack import attack_settings
from polyfed.engine.simulate import simulate_all
from polyfed.engine.sweep import Sweep
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, run
from tests.conftest import each_method, few, small_method, unequal_clients

SITES = 9
LR = 0.2
GRADIENT = algorithms.FedAvg(lr=LR, local_steps=1, batch="full", weighting="size")
FALSE = ("s1", "s4")


def rows_of(site: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(site)
    x = rng.normal(size=(4 + site, 3))
    return x, x @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=4 + site)


@pytest.fixture(scope="module")
def squares() -> pf.Problem:
    federation = pf.Federation.from_arrays({f"s{i}": {"train": rows_of(i)} for i in range(SITES)})
    return pf.Problem(federation, pf.models.linear(bias=False), "squared")


@pytest.fixture(scope="module")
def classes() -> pf.Problem:
    return pf.Problem(pf.Federation.from_arrays(unequal_clients(), classes=3), pf.models.linear(), "softmax", l2=0.01)


def moves(start: np.ndarray) -> np.ndarray:
    """Each client's step of gradient descent, in closed form."""
    return np.stack([-LR * x.T @ (x @ start - y) / len(y) for x, y in map(rows_of, range(SITES))])


def ended(problem: pf.Problem, method: Any = GRADIENT, rounds: int = 1, **options: Any) -> np.ndarray:
    return server_of(pf.simulate(problem, method, rounds=rounds, eval_every=rounds, dtype="float64", **options))


def server_of(result: pf.Result) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.simulation.server)])


def krum(rows: np.ndarray, f: int) -> np.ndarray:
    away = np.sort(np.sum((rows[:, None] - rows) ** 2, axis=2), axis=1)[:, 1:]
    return rows[np.argmin(away[:, : len(rows) - f - 2].sum(axis=1))]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("median", lambda rows: np.median(rows, axis=0)),
        (pf.Aggregate("trimmed_mean", 2), lambda rows: trim_mean(rows, 2 / SITES + 1e-9, axis=0)),
        (pf.Aggregate("krum", 2), lambda rows: krum(rows, 2)),
        (pf.Aggregate("mean"), lambda rows: rows.mean(axis=0)),
    ],
)
def test_two_rounds_are_those_of_numpy(squares: pf.Problem, rule: Any, expected: Any, devices: int) -> None:
    model = np.zeros(3)
    for _ in range(2):
        model = model + expected(moves(model))
    found = ended(squares, rounds=2, aggregate=rule, devices=devices, chunk=2)
    np.testing.assert_allclose(found, model, atol=1e-12)


def test_a_cohort_is_summed_up_by_its_own_uploads(squares: pf.Problem) -> None:
    plain = pf.simulate(squares, GRADIENT, rounds=1, participation=4, dtype="float64", seed=3)
    places, taken = plain.simulation.programs.cohort(0)
    expected = np.median(moves(np.zeros(3))[np.sort(places[taken])], axis=0)
    for devices in (1, 2):
        found = ended(squares, participation=4, seed=3, aggregate="median", devices=devices)
        np.testing.assert_allclose(found, expected, atol=1e-12)


WEIGHTED = [name for name in REGISTRY if name not in ("dcgd", "diana", "qfedavg")]


@pytest.mark.full
@pytest.mark.parametrize("name", each_method(WEIGHTED, quick=("scafflix", "scaffold")))
def test_the_weighted_mean_of_single_uploads_is_the_plain_run(classes: pf.Problem, name: str) -> None:
    method = small_method(name)
    options: dict[str, Any] = {"participation": 1.0 if name == "local" else 4, "devices": 2}
    options |= {"rounds": 3, "eval_every": 3, "dtype": "float64"}
    plain = pf.simulate(classes, method, **options)
    singly = pf.simulate(classes, method, aggregate=pf.Aggregate("mean", weighted=True), **options)
    pairs = [(singly.simulation.server, plain.simulation.server), (singly.client_state, plain.client_state)]
    for found, expected in pairs:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10), found, expected)


@pytest.mark.parametrize("name", few(["apfl", "fedbc", "flix", "scafflix", "scaffold", "plsgd"], "apfl"))
@pytest.mark.parametrize("rule", few(["median", "trimmed_mean", "krum", "geometric_median"], "geometric_median"))
def test_devices_change_nothing(classes: pf.Problem, name: str, rule: str) -> None:
    options: dict[str, Any] = {"aggregate": pf.Aggregate(rule, 1, bound="median"), "participation": 5}  # type: ignore
    one, two = (ended(classes, small_method(name), 3, devices=devices, **options) for devices in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9)


def test_the_bound_of_the_second_round_is_that_of_the_first(squares: pf.Problem) -> None:
    first = moves(np.zeros(3))
    middle = np.median(np.linalg.norm(first, axis=1))
    model = (first * np.minimum(1, 0.5 * middle / np.linalg.norm(first, axis=1))[:, None]).mean(axis=0)
    second = moves(model)
    model = model + (second * np.minimum(1, 0.5 * middle / np.linalg.norm(second, axis=1))[:, None]).mean(axis=0)
    rule = pf.Aggregate("mean", bound="median", factor=0.5)
    np.testing.assert_allclose(ended(squares, rounds=2, aggregate=rule), model, atol=1e-12)


def test_a_run_bounded_by_past_norms_goes_on_to_the_same_bits(classes: pf.Problem, tmp_path: Path) -> None:
    options: dict[str, Any] = {"aggregate": pf.Aggregate("median", bound="median", factor=0.5), "participation": 4}
    method = small_method("fedavg")
    whole = pf.simulate(classes, method, rounds=6, **options)
    pf.simulate(classes, method, rounds=3, checkpoint=tmp_path, **options)
    resumed = pf.simulate(classes, method, rounds=6, resume=tmp_path, **options)
    np.testing.assert_array_equal(server_of(whole), server_of(resumed))
    assert whole.simulation.resident.norms == resumed.simulation.resident.norms
    with pytest.raises(PolyfedError, match="another run: aggregate was"):
        pf.simulate(classes, method, rounds=6, resume=tmp_path, participation=4)


# Attacks.


def attacked(rows: np.ndarray, attack: pf.Attack) -> np.ndarray:
    """What a round's server receives, from the attacks' definitions."""
    rows, bad, strength = rows.copy(), [1, 4], attack.strength
    if attack.kind == "sign_flip":
        rows[bad] *= -(strength or 1)
    if attack.kind == "scale":
        rows[bad] *= strength or 10
    if attack.kind == "little":
        n, m = SITES, len(bad)
        z = strength or norm.ppf((n - m - (n // 2 + 1 - m)) / (n - m))
        rows[bad] = rows.mean(axis=0) + z * rows.std(axis=0)
    return rows


@pytest.mark.parametrize(
    "attack",
    [
        pf.Attack("sign_flip", clients=FALSE),
        pf.Attack("sign_flip", clients=FALSE, strength=3.0),
        pf.Attack("scale", clients=FALSE),
        pf.Attack("little", clients=FALSE),
        pf.Attack("little", clients=FALSE, strength=1.5),
    ],
    ids=lambda attack: f"{attack.kind} {attack.strength}",
)
def test_attackers_send_what_the_attack_says(squares: pf.Problem, attack: pf.Attack) -> None:
    rows = attacked(moves(np.zeros(3)), attack)
    sizes = np.array([4 + site for site in range(SITES)])
    np.testing.assert_allclose(ended(squares, attack=attack), sizes @ rows / sizes.sum(), atol=1e-12)
    found = ended(squares, attack=attack, aggregate="median", devices=2)
    np.testing.assert_allclose(found, np.median(rows, axis=0), atol=1e-12)


def test_noise_is_as_long_as_it_says_and_of_the_attackers_alone(squares: pf.Problem) -> None:
    strengths, honest = [], moves(np.zeros(3))
    for seed in range(20):
        found = ended(squares, attack=pf.Attack("noise", clients=("s4",)), aggregate=pf.Aggregate("mean"), seed=seed)
        false = SITES * found - (honest.sum(axis=0) - honest[4])
        strengths.append(np.mean(false**2) / np.mean(honest[4] ** 2))
    assert 0.4 * 100 < np.mean(strengths) < 1.8 * 100  # the mean square of 60 normal draws deviates by 0.18
    assert len(set(np.round(strengths, 6))) == 20


def test_flipped_labels_are_trained_on_and_not_measured(classes: pf.Problem) -> None:
    clients = unequal_clients()
    for name in ("site-1", "site-3"):
        x, y = clients[name]["train"]
        clients[name]["train"] = x, 2 - y
    by_hand = pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)
    attack, method = pf.Attack("label_flip", clients=("site-1", "site-3")), small_method("fedavg")
    options: dict[str, Any] = {"rounds": 3, "dtype": "float64", "devices": 2}
    found = pf.simulate(classes, method, attack=attack, **options)
    expected = pf.simulate(by_hand, method, **options)
    np.testing.assert_allclose(server_of(found), server_of(expected), atol=1e-12)
    start, other = found.history["objective"].iloc[0], expected.history["objective"].iloc[0]
    assert start == pytest.approx(pf.simulate(classes, method, **options).history["objective"].iloc[0])
    assert found.history["objective"].iloc[-1] != expected.history["objective"].iloc[-1]
    assert start == pytest.approx(other)  # at zero every label costs the same


def test_labels_that_are_numbers_are_not_flipped(squares: pf.Problem) -> None:
    with pytest.raises(PolyfedError, match="'label_flip' needs classes"):
        ended(squares, attack=pf.Attack("label_flip", share=0.3))


def test_a_share_of_attackers_is_drawn_by_seed_and_name() -> None:
    names = [f"client {i}" for i in range(20)]
    attack = pf.Attack("scale", share=0.3)
    drawn = {names[i] for i in attack.attackers(names, 0)}
    assert len(drawn) == 6
    assert drawn == {names[::-1][i] for i in attack.attackers(names[::-1], 0)}
    assert drawn != {names[i] for i in attack.attackers(names, 1)}


# Several runs, and refusals.


def test_several_seeds_are_run_one_by_one(classes: pf.Problem) -> None:
    method = small_method("fedavg")
    planned = [PlannedRun(classes, method, seed) for seed in (0, 1)]
    together = simulate_all(planned, rounds=2, aggregate="median", dtype="float64")
    for seed, result in enumerate(together):
        alone = pf.simulate(classes, method, rounds=2, seed=seed, aggregate="median", dtype="float64")
        np.testing.assert_array_equal(server_of(result), server_of(alone))
    with pytest.raises(PolyfedError, match="single uploads are no sweep"):
        Sweep([result.simulation for result in together])


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        (
            "fedavg",
            {"store": "host"},
            "need the clients' states and rows on the devices",
        ),
        ("fedavg", {"privacy": pf.Privacy(1.0, 1.0)}, "aggregate does not go with privacy: its noise protects a sum"),
        ("qfedavg", {}, "qfedavg: its server reads the sum of the uploads"),
        ("diana", {}, "diana: its uploads are compressed"),
        (
            "fedavg",
            {"aggregate": pf.Aggregate("krum", 2)},
            "withstands 2 attackers among at least 7 uploads",
        ),
        ("fedavg", {"attack": pf.Attack("scale", clients=("site-9",))}, "there is no client 'site-9'"),
    ],
)
def test_what_does_not_go_together_is_refused(classes: pf.Problem, method: str, options: Any, sentence: str) -> None:
    with pytest.raises(PolyfedError, match=sentence):
        pf.simulate(classes, small_method(method), rounds=1, **{"aggregate": "median", **options})


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"kind": "sing_flip", "share": 0.1}, "c.toml: unknown attack.kind 'sing_flip'; did you mean 'sign_flip'"),
        ({"kind": "scale"}, "either attack.share or attack.clients"),
        ({"kind": "scale", "share": 1.0}, "attack.share must be at least 0 and below 1"),
        ({"kind": "scale", "clients": [1]}, "attack.clients must be a list of clients' names"),
        ({"kind": "scale", "share": 0.1, "strength": 0}, "attack.strength must be a number above 0"),
        ({"kind": "label_flip", "share": 0.1, "strength": 1}, "attack.strength is not for label_flip"),
        ({"kind": "scale", "number": 3}, "unknown key attack.number"),
    ],
)
def test_attacks_that_make_no_sense_are_named(section: Any, sentence: str) -> None:
    with pytest.raises(PolyfedError, match=sentence):
        attack_settings(section, "c.toml")


def test_a_config_chooses_both_and_the_summary_says_so(tmp_path: Path) -> None:
    config = {
        "data": {"source": "synthetic", "clients": 10, "alpha": 0.5, "beta": 0.5},
        "algorithm": {"name": "fedavg", "local_steps": 2},
        "run": {"rounds": 2, "alone": False, "finetune_steps": 0},
        "aggregate": {"rule": "trimmed_mean", "attackers": 0.2, "bound": "median"},
        "attack": {"kind": "sign_flip", "share": 0.2},
    }
    [record] = run(make_config(config), tmp_path, Options())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["aggregate"]["rule"], summary["aggregate"]["bound"]) == ("trimmed_mean", "median")
    assert (summary["attack"]["kind"], len(summary["attack"]["clients"])) == ("sign_flip", 2)
    text = (tmp_path / "config.toml").read_text()
    assert text.index("[aggregate]") < text.index("[attack]")
    assert record.summary["attack"] == summary["attack"]
    with pytest.raises(PolyfedError, match=r"\[tune\] does not go with \[aggregate\]"):
        make_config(config | {"tune": {}})
