"""What must hold for every algorithm in the registry: a new one is tested by being registered."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY
from polyfed.algorithms.shared.mixture import Mixture, MixtureMethod
from polyfed.bench.compilations import compilations
from polyfed.core import trees
from polyfed.engine.participation import Bernoulli, sampling
from polyfed.engine.simulation import Simulation
from polyfed.problem.problem import precision
from tests.algorithms.comparison import SEED, cohort, late_seed
from tests.conftest import KINDS, each_method, small_method, unequal_clients

ROUNDS = 4
OPTIONS: dict[str, dict[str, Any]] = {
    "flix, one gradient": {"local_steps": 1, "local_lr": None},
    "flix, average": {"local_steps": 1, "local_lr": None, "start": "average"},
    "diana, gradient": {"memory": "gradient"},
    "scafflix, gradient": {"control": "gradient"},
    "fedbc, own start": {"start": "own"},
    "perfedbc, own models": {"deploy": "own"},
    "apfl, weighted": {"output": "weighted", "output_offset": 3.0},
    "plsgd, output II": {"output": "II"},
    "plsgd, output III": {"output": "III"},
}
"""Options that lead through other lines of a method."""


THREE = ("apfl", "diana", "scafflix")
"""Methods with a state of their own share, compressed, and absorbing: for properties that take long to compile."""


@pytest.fixture(params=each_method([*sorted(REGISTRY), "flix, one gradient"]))
def method(request):
    """Each registered algorithm, with little local work."""
    return small_method(request.param.split(",")[0], **OPTIONS.get(request.param, {}))


def run(problem, method, **options):
    return pf.simulate(problem, method, **{"rounds": ROUNDS, "eval_every": 2, "dtype": "float64", **options})


def trained(problem, method, **options) -> Simulation:
    """A simulation after some rounds, without measuring: that would have to be compiled as well."""
    simulation = Simulation(problem, method, **{"dtype": "float64", **options})
    simulation.prepare()
    simulation.advance(ROUNDS)
    return simulation


def states(problem, method, **options) -> list[np.ndarray]:
    """The server and the clients after some rounds."""
    simulation = trained(problem, method, **options)
    return [*map(np.asarray, jax.tree.leaves((simulation.server, simulation.client_state)))]


def outcome(result) -> list[np.ndarray]:
    """All that a run ends with: server, client states, and metrics but for the time."""
    metrics = result.history.drop(columns="seconds").to_numpy(float)
    return [*map(np.asarray, jax.tree.leaves((result.simulation.server, result.client_state))), metrics]


def training_loss(simulation: Simulation) -> float:
    """Of the deployed models, with the ridge, in the mean over clients."""
    values = simulation.measure()["personal"]["train"]
    return float(np.mean(values["loss"] + values["ridge"]))


def assert_same(one, other, tolerance: float) -> None:
    a, b = outcome(one), outcome(other)
    assert len(a) == len(b)
    for left, right in zip(a, b, strict=True):
        if tolerance == 0:
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("method", each_method([*sorted(REGISTRY), "flix, one gradient"], THREE), indirect=True)
def test_stays_finite_and_lowers_the_objective(problem, method) -> None:
    result = run(problem, method, rounds=20, participation=3)
    assert all(np.isfinite(leaf).all() for leaf in outcome(result))
    objective = result.history["objective"]
    assert objective.iloc[-1] < objective.iloc[0]
    assert result.excluded == {}


def test_local_work_with_products_of_16_bits_keeps_all_else_in_32(problem, method) -> None:
    """A client's upload and state; what the server does never sees another type."""
    simulation = Simulation(problem, method, compute="bfloat16")
    programs, client = simulation.programs, jnp.int32(1)

    @jax.jit
    def work(method, server, data):
        upload, state = programs.round.one_client(
            method, method.broadcast(server), data, client, client, simulation.start
        )
        return upload.values, upload.weight, state

    with precision("float32"):
        lowered = work.lower(programs.method, simulation.server, programs.data)
        found = lowered.compile()(programs.method, simulation.server, programs.data)
    assert "bf16" in lowered.as_text()
    real = [leaf for leaf in jax.tree.leaves(found) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    assert {leaf.dtype.name for leaf in real} <= {"float32"}
    assert all(np.isfinite(leaf).all() for leaf in real)


def test_same_seed_is_bit_identical(problem, method) -> None:
    assert_same(run(problem, method, participation=3, seed=2), run(problem, method, participation=3, seed=2), 0)


def test_another_seed_gives_another_run(problem, method) -> None:
    first, second = run(problem, method, participation=3, seed=2), run(problem, method, participation=3, seed=3)
    assert not np.array_equal(outcome(first)[-1], outcome(second)[-1])


@pytest.mark.parametrize("method", each_method([*sorted(REGISTRY), "flix, one gradient"], THREE), indirect=True)
def test_chunks_and_devices_change_nothing_beyond_rounding(problem, method) -> None:
    """One device, with a last chunk to fit in, against two, each with all its clients side by side."""
    expected = states(problem, method, participation=3)
    found = states(problem, method, participation=3, devices=1, chunk=2)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", each_method([*sorted(REGISTRY), "flix, one gradient"], THREE), indirect=True)
def test_float32_agrees_with_float64_to_its_precision(problem, method) -> None:
    single = states(problem, method, participation=3, dtype="float32")
    double = states(problem, method, participation=3)
    for low, high in zip(single, double, strict=True):
        np.testing.assert_allclose(low, high, rtol=2e-4, atol=2e-5)
        assert (
            low.dtype == high.dtype if high.dtype.kind != "f" else (low.dtype, high.dtype) == (np.float32, np.float64)
        )
    bits = [Simulation(problem, method, dtype=dtype).facts.wire_up for dtype in ("float32", "float64")]
    assert bits[0] == bits[1] / 2


def test_no_round_after_the_first_compiles_anything(problem, method) -> None:
    """Neither a whole program nor a single operation; with states on the devices and, for some methods, in memory."""
    for store in ("device", "host") if method.name in ("apfl", "diana", "fedavg", "scafflix") else ("device",):
        simulation = Simulation(problem, method, dtype="float64", participation=3, store=store)
        simulation.prepare()
        simulation.advance(1)
        with compilations() as counted:
            simulation.advance(1)
            simulation.advance(3)
        assert len(counted) == 0, store


def test_resuming_is_bit_identical(problem, method, tmp_path: Path) -> None:
    expected = run(problem, method, rounds=6, participation=3)
    run(problem, method, rounds=3, participation=3, checkpoint=tmp_path)
    assert_same(run(problem, method, rounds=6, participation=3, resume=tmp_path), expected, 0)


@pytest.mark.parametrize("method", each_method(KINDS, quick=("apfl", "scafflix")), indirect=True)
def test_a_checkpoint_can_be_resumed_on_other_devices_and_from_another_store(problem, method, tmp_path: Path) -> None:
    expected = run(problem, method, participation=3)
    run(problem, method, rounds=2, participation=3, checkpoint=tmp_path, devices=1, chunk=2)
    assert_same(run(problem, method, participation=3, resume=tmp_path, store="host"), expected, 1e-12)


@pytest.mark.parametrize("method", each_method([*sorted(REGISTRY), "flix, one gradient"], THREE), indirect=True)
def test_permuting_the_clients_permutes_the_result(problem, method) -> None:
    clients = unequal_clients()
    order = [3, 0, 5, 1, 4, 2]
    names = list(clients)
    shuffled = pf.Federation.from_arrays({names[i]: clients[names[i]] for i in order}, classes=3)
    other = trained(pf.Problem(shuffled, pf.models.linear(), "softmax", l2=0.01), method)
    first = trained(problem, method)
    for name in names:
        for a, b in zip(jax.tree.leaves(first.personal(name)), jax.tree.leaves(other.personal(name)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("method", each_method([*sorted(REGISTRY), "flix, one gradient"], THREE), indirect=True)
def test_runs_with_a_single_client(method) -> None:
    clients = unequal_clients()
    alone = pf.Problem(pf.Federation.from_arrays({"only": clients["site-1"]}, classes=3), pf.models.linear(), "softmax")
    result = run(alone, method)
    assert np.isfinite(result.history["objective"]).all()
    assert len(result.evaluate("test")) == 1


def test_bits_are_counted_exactly_where_something_is_sent(problem, method) -> None:
    """The upload and the broadcast are asked what they consist of, and multiplied by who took part."""
    simulation = Simulation(problem, method, participation=3, dtype="float64")
    simulation.prepare()
    assert simulation.bits_up == simulation.bits_down == 0
    simulation.advance(2)
    if simulation.facts.wire_up:  # else the messages are compressed, and say themselves what they take
        assert simulation.bits_up == 2 * 3 * simulation.facts.wire_up
    if method.absorb is None:
        assert simulation.bits_down == 2 * 3 * simulation.facts.wire_down
    communicates = simulation.global_params is not None
    assert (simulation.bits_up > 0) == (simulation.bits_down > 0) == communicates


def test_absent_clients_are_unchanged(problem, method) -> None:
    simulation = Simulation(problem, method, participation=3, seed=4, dtype="float64")
    simulation.prepare()
    for round in range(3):
        before = jax.tree.leaves(simulation.client_state)
        simulation.advance(1)
        after = jax.tree.leaves(simulation.client_state)
        clients, _, _ = sampling(3, len(problem)).cohort(jnp.uint32(4), jnp.int32(round), jnp.arange(3))
        absent = sorted(set(range(len(problem))) - {int(c) for c in clients})
        assert len(absent) == len(problem) - 3
        for old, new in zip(before, after, strict=True):
            np.testing.assert_array_equal(old[absent], new[absent])


@pytest.mark.parametrize(
    "method",
    each_method([*sorted(REGISTRY), "flix, average", "diana, gradient", "scafflix, gradient"], THREE),
    indirect=True,
)
def test_an_empty_first_round_changes_nothing_and_what_begins_then_begins_later(problem, method) -> None:
    """Each client comes with a probability, and at first nobody does."""
    seldom = Bernoulli(0.4)
    simulation = Simulation(problem, method, participation=seldom, seed=late_seed(seldom, problem), dtype="float64")
    simulation.prepare()
    before = jax.tree.leaves((simulation.server, simulation.client_state))
    simulation.advance(1)
    for old, new in zip(before, jax.tree.leaves((simulation.server, simulation.client_state)), strict=True):
        np.testing.assert_array_equal(old, new)
    assert simulation.bits_up == simulation.bits_down == 0
    start = training_loss(simulation)
    simulation.advance(30)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((simulation.server, simulation.client_state)))
    assert training_loss(simulation) < start
    assert simulation.excluded == {}


@pytest.mark.parametrize(
    "method",
    each_method(sorted({*REGISTRY, *OPTIONS} - {"local"}), (*THREE, "fedbc", "ditto", "pfedme")),
    indirect=True,
)
def test_clients_that_never_came_deploy_the_global_model(problem, method) -> None:
    """Before they adapt it; with mixtures, beside the local models that they made before round 1."""
    simulation = Simulation(problem, method, participation=1, seed=SEED, dtype="float64", init="random")
    simulation.prepare()
    simulation.advance(3)
    members = cohort(1, problem)
    absent = sorted(set(range(len(problem))) - {client for round in range(3) for client in members(round)})
    assert len(absent) >= 3
    for client in absent:
        state = jax.tree.map(lambda leaf, i=client: leaf[i], simulation.client_state)
        with precision("float64"):
            found = simulation.programs.method.personal(simulation.server, state)
        expected = simulation.global_params
        if isinstance(method, MixtureMethod):
            mine = state if isinstance(state, Mixture) else state.mixture
            expected = trees.mix(mine.alpha, expected, mine.own)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
    if simulation.own_share is not None and not isinstance(method, MixtureMethod):
        np.testing.assert_array_equal(simulation.own_share[absent], 0.0)


def test_a_client_whose_update_is_not_finite_is_left_out(method) -> None:
    """One client's gradient overflows: the others go on as if it were not there, and its state stays what it was."""
    clients = {
        name: {split: (x, y.astype(float)) for split, (x, y) in splits.items()}
        for name, splits in unequal_clients().items()
    }
    x, y = clients["site-2"]["train"]
    clients["site-2"]["train"] = (np.sign(x) * 1e200, y)
    model = (lambda key: jax.random.normal(key, x.shape[1:]), lambda w, rows: rows @ w)
    broken = pf.Problem(pf.Federation.from_arrays(clients), model, "squared", l2=0.01)
    simulation = Simulation(broken, method, dtype="float64", init="random")
    start = jax.tree.map(lambda leaf: leaf[2], simulation.client_state)
    simulation.advance(3)
    assert simulation.excluded == {"site-2": 3}
    for old, new in zip(jax.tree.leaves(start), jax.tree.leaves(simulation.client_state), strict=True):
        np.testing.assert_array_equal(old, new[2])
    if simulation.global_params is not None:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(simulation.global_params))


def test_changing_a_real_hyper_parameter_compiles_nothing_anew(problem, method) -> None:
    traced = [f.name for f in dataclasses.fields(method) if isinstance(getattr(method, f.name), float)]
    run(problem, method, participation=3)
    changed = dataclasses.replace(method, **{name: 0.9 * getattr(method, name) for name in traced})
    assert run(problem, changed, participation=3).compile_seconds == 0
