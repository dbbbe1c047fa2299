"""Who takes part: exact numbers, fair draws, and nothing that depends on the past."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.participation import sampling
from polyfed.engine.simulation import Simulation
from tests.conftest import few


def cohorts(plan, seed: int, rounds: int) -> list[list[int]]:
    draw = jax.jit(jax.vmap(lambda round: plan.cohort(jnp.uint32(seed), round, jnp.arange(plan.capacity))))
    clients, taken, _ = draw(jnp.arange(rounds))
    return [np.asarray(c)[np.asarray(t)].tolist() for c, t in zip(clients, taken, strict=True)]


def test_k_of_n_without_replacement() -> None:
    for members in cohorts(sampling(7, 20), seed=1, rounds=50):
        assert len(set(members)) == len(members) == 7
        assert set(members) <= set(range(20))


def test_every_client_is_drawn_equally_often() -> None:
    counts = np.bincount(np.concatenate(cohorts(sampling(5, 20), seed=3, rounds=4000)), minlength=20)
    expected = 4000 * 5 / 20
    assert ((counts - expected) ** 2 / expected).sum() < 55  # 19 degrees of freedom


def test_each_with_probability_q() -> None:
    sizes = [len(members) for members in cohorts(sampling(pf.Bernoulli(0.3), 40), seed=2, rounds=3000)]
    assert np.mean(sizes) == pytest.approx(12, abs=0.25)
    assert np.var(sizes) == pytest.approx(40 * 0.3 * 0.7, rel=0.12)


@pytest.mark.parametrize(("clients", "q"), [(40, 0.3), (7, 0.5), (300, 0.9), (5000, 0.01)])
def test_a_cohort_is_the_same_in_both_precisions(clients: int, q: float) -> None:
    plan = sampling(pf.Bernoulli(q), clients)
    drawn = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            sizes = jax.jit(jax.vmap(lambda n: plan.cohort(jnp.uint32(2), n, jnp.arange(1))[2]))
            drawn.append(np.asarray(sizes(jnp.arange(300, dtype=jnp.int32))))
    np.testing.assert_array_equal(*drawn)


def test_a_cohort_depends_on_seed_and_round_alone() -> None:
    assert cohorts(sampling(4, 30), 5, 10)[7:] == cohorts(sampling(4, 30), 5, 10)[7:]
    assert cohorts(sampling(4, 30), 5, 10) != cohorts(sampling(4, 30), 6, 10)


@pytest.mark.parametrize(("share", "clients"), [(1.0, 10), (0.5, 5), (0.26, 3), (0.01, 1), (4, 4)])
def test_a_share_becomes_a_number_of_clients(share, clients) -> None:
    assert sampling(share, 10).capacity == clients


@pytest.mark.parametrize("wrong", [0, 11, -1, 0.0, 1.5, True, "all", float("nan"), pf.Bernoulli(0.0), pf.Bernoulli(2)])
def test_a_wrong_participation_is_refused(wrong) -> None:
    with pytest.raises(pf.PolyfedError, match="participation"):
        sampling(wrong, 10)


@pytest.mark.parametrize(("devices", "chunk"), few([(1, 2), (2, 1), (2, None)], (2, 1)))
def test_bits_follow_the_drawn_cohort_sizes(problem, devices: int, chunk: int | None) -> None:
    plan = sampling(pf.Bernoulli(0.4), len(problem))
    took_part = sum(len(members) for members in cohorts(plan, 9, 12))
    simulation = Simulation(
        problem, pf.algorithms.FedAvg(), participation=pf.Bernoulli(0.4), seed=9, devices=devices, chunk=chunk
    )
    simulation.advance(12)
    assert simulation.bits_up == took_part * 32 * (simulation.parameters + 1)
    assert simulation.bits_down == took_part * 32 * simulation.parameters


def test_an_empty_cohort_changes_nothing() -> None:
    """With q = 0.02 and six clients most rounds have nobody: the model stays, and the run is not called diverged."""
    clients = [(np.random.default_rng(i).normal(size=(10, 3)), np.arange(10) % 2) for i in range(6)]
    problem = pf.Problem(pf.Federation.from_arrays(clients), pf.models.linear(), "softmax")
    result = pf.simulate(problem, pf.algorithms.FedAvg(), rounds=30, participation=pf.Bernoulli(0.02), seed=1)
    members = cohorts(sampling(pf.Bernoulli(0.02), 6), 1, 30)
    first = next(i for i, cohort in enumerate(members) if cohort)
    assert first > 0
    assert result.diverged is None
    assert result.history["objective"].iloc[first] == result.history["objective"].iloc[0]
    assert result.history["objective"].iloc[first + 1] != result.history["objective"].iloc[0]
