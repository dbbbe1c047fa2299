"""bfloat16 products with float32 master weights: what is rounded, what is not, and how far runs end apart."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.measure import FineTune
from polyfed.engine.simulation import Simulation
from polyfed.engine.sweep import Sweep
from polyfed.problem.problem import precision
from tests.conftest import few, unequal_clients

FEDAVG = pf.algorithms.FedAvg(lr=0.1, local_steps=4, batch=5)


def images() -> pf.Federation:
    """Each class is a bright square in another corner, with noise."""
    draws, clients = np.random.default_rng(0), []
    for _ in range(3):
        y = draws.integers(0, 3, 24)
        x = draws.integers(0, 120, (24, 12, 12), dtype=np.uint8)
        for row, label in zip(x, y, strict=True):
            row[6 * (label // 2) :, 6 * (label % 2) :][:6, :6] += 100
        clients.append((x, y))
    return pf.Federation.from_arrays(clients, classes=3, validation=0, test=0)


def texts() -> pf.Federation:
    draws = np.random.default_rng(0)
    rows = [draws.integers(0, 5, (24, 6)).astype(np.int32) for _ in range(3)]
    return pf.Federation.from_arrays([(x, x[:, -1]) for x in rows], classes=5, validation=0, test=0)


def own_pair() -> Any:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        return {"w": 0.1 * jax.random.normal(key, (144, 3)), "b": jnp.zeros(3)}

    return init, lambda params, x: x.reshape(len(x), -1) @ params["w"] + params["b"]


PROBLEMS: dict[str, pf.Problem] = {
    "linear": pf.Problem(images(), pf.models.linear(), l2=0.01),
    "mlp": pf.Problem(images(), pf.models.mlp([20, 20], dropout=0.1), l2=0.01),
    "cnn": pf.Problem(images(), pf.models.cnn(channels=[4, 6], hidden=[10])),
    "lstm": pf.Problem(texts(), pf.models.lstm(embedding=6, hidden=16, layers=2)),
    "own": pf.Problem(images(), own_pair()),
}


@cache
def lowered(problem: pf.Problem, compute: Any = None, platform: str = "cpu") -> str:
    """The local work of one client as the compiler of a platform gets it."""
    simulation = Simulation(problem, FEDAVG, compute=compute)
    with precision("float32"):
        round, data, params = simulation.programs.round, simulation.programs.data, simulation.global_params
        work = jax.jit(lambda x, data: round.one_client(FEDAVG, x, data, jnp.int32(0), jnp.int32(0), None)[0].values)
        return work.trace(params, data).lower(lowering_platforms=(platform,)).as_text()


def products(text: str) -> list[str]:
    """The types of each product of the model, whose sides are matrices or more."""
    return re.findall(r"dot_general .* : (\(tensor<\d+x\d+x.*, tensor<\d+x\d+x.*)", text)


@pytest.mark.parametrize("name", few(PROBLEMS, "linear", "mlp", "cnn", "own"))
def test_every_product_of_the_model_is_of_16_bits_and_none_without_the_option(name: str) -> None:
    plain, narrow = lowered(PROBLEMS[name]), lowered(PROBLEMS[name], "bfloat16")
    assert "bf16" not in plain
    assert plain == lowered(PROBLEMS[name], "float32")
    assert len(products(narrow)) == len(products(plain)) > 0
    assert all(line.count("bf16") == 3 for line in products(narrow))


def test_so_it_is_on_a_gpu_where_narrow_layers_and_convolutions_are_other_products() -> None:
    plain, narrow = (lowered(PROBLEMS["cnn"], compute, "cuda") for compute in (None, "bfloat16"))
    assert products(plain) != products(lowered(PROBLEMS["cnn"]))
    assert len(products(narrow)) == len(products(plain))
    assert all(line.count("bf16") == 3 for line in products(narrow))


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "lstm"])
def test_no_sum_over_rows_is_of_16_bits(name: str) -> None:
    """The gradient of a bias adds up as many numbers as there are rows and pixels: 256 ones and one more are 256."""
    sums = re.findall(r"stablehlo.reduce\(.*applies stablehlo.add.*", lowered(PROBLEMS[name], "bfloat16"))
    assert sums
    assert not [line for line in sums if "bf16" in line]


@pytest.mark.parametrize("name", few(["mlp", "cnn", "lstm"]))
def test_a_run_ends_near_that_of_32_bits(name: str) -> None:
    losses = []
    for compute in ("float32", "bfloat16"):
        simulation = Simulation(PROBLEMS[name], replace(FEDAVG, lr=0.5), compute=compute)
        before = np.mean(simulation.measure()["global"]["train"]["loss"])
        simulation.advance(25)
        losses.append(np.mean(simulation.measure()["global"]["train"]["loss"]))
        assert {leaf.dtype.name for leaf in jax.tree.leaves(simulation.server)} == {"float32"}
    exact, found = losses
    assert exact < 0.6 * before
    assert found != exact
    assert abs(found - exact) < 0.03 * (before - exact)


def test_steps_below_the_resolution_of_16_bits_add_up() -> None:
    """w <- (1 - lr) w from 1: below 1, numbers of 16 bits are 1/256 apart; weights kept in them would not move."""
    federation = pf.Federation.from_arrays([(np.ones((1, 1)), np.zeros(1))] * 2, validation=0, test=0)
    problem = pf.Problem(federation, pf.models.linear(bias=False), "squared")
    lr, steps = 1e-4, 400
    assert jnp.bfloat16(1) - jnp.bfloat16(lr) == 1
    simulation = Simulation(
        problem, pf.algorithms.FedAvg(lr=lr, local_steps=steps // 10, batch=1), init="ones", compute="bfloat16"
    )
    simulation.advance(10)
    assert simulation.global_params["w"][0] == pytest.approx((1 - lr) ** steps, abs=2e-4)


@pytest.mark.full
def test_what_comes_before_and_after_the_rounds_is_of_32_bits() -> None:
    """Pure local models, metrics, and fine-tuning; each side has a problem, and so programs, of its own."""
    federation = pf.Federation.from_arrays(unequal_clients(), classes=3, test=0)
    method, found = pf.algorithms.FLIX(alpha=0.5, lr=0.1, plm_tolerance=1e-4), []
    for compute in (None, "bfloat16"):
        simulation = Simulation(pf.Problem(federation, pf.models.linear(), l2=0.1), method, compute=compute)
        simulation.prepare()
        found.append((simulation.client_state, simulation.measure(), simulation.measure(FineTune(steps=2))))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert found[0][0].grad_norm.max() <= 1e-4


@pytest.mark.full
def test_stores_and_sweep_compute_the_same() -> None:
    def made(**options: Any) -> Simulation:
        method = pf.algorithms.Scaffold(lr=0.1, local_steps=4, batch=5)
        return Simulation(PROBLEMS["linear"], method, **{"compute": "bfloat16", "store": "device", **options})

    exact, here, streamed, first, second = made(compute=None), made(), made(store="host"), made(), made()
    for simulation in (exact, here, streamed):
        simulation.advance(2)
    sweep = Sweep([first, second])
    sweep.advance(2)
    sweep.settle()
    for simulation in (streamed, first, second):
        np.testing.assert_allclose(simulation.global_params["w"], here.global_params["w"], rtol=1e-5, atol=1e-6)
    assert np.abs(here.global_params["w"] - exact.global_params["w"]).max() > 1e-5
    with pytest.raises(pf.PolyfedError, match="must agree in compute: found float32 and bfloat16"):
        Sweep([made(compute=None), made()])


def test_a_resumed_run_ends_in_the_same_bits_and_only_with_the_same_type(tmp_path: Path) -> None:
    def run(rounds: int, **options: Any) -> Any:
        options = {"compute": "bfloat16", "eval_every": 2, **options}
        return pf.simulate(PROBLEMS["linear"], FEDAVG, rounds=rounds, **options)

    run(2, checkpoint=tmp_path)
    with pytest.raises(pf.PolyfedError, match=r"dtype was .float32, computed in bfloat16., now it is .float32.$"):
        run(4, resume=tmp_path, compute=None)
    resumed, whole = run(4, resume=tmp_path), run(4)
    jax.tree.map(np.testing.assert_array_equal, resumed.global_params, whole.global_params)
    assert resumed.simulation.compute == "bfloat16"
    assert resumed.simulation.dtype == "float32"


def test_a_type_that_does_not_exist_is_named() -> None:
    with pytest.raises(
        pf.PolyfedError, match=r"^compute must be 'float32', .* found 'bfloat'; did you mean 'bfloat16'"
    ):
        Simulation(PROBLEMS["linear"], FEDAVG, compute="bfloat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(pf.PolyfedError, match=r"^compute must be 'float64', .* found 'float32'"):
        Simulation(PROBLEMS["linear"], FEDAVG, dtype="float64", compute="float32")
    with pytest.raises(
        pf.PolyfedError, match=r"^compute = 'bfloat16' goes with dtype 'float32', found dtype 'float64'$"
    ):
        Simulation(PROBLEMS["linear"], FEDAVG, dtype="float64", compute="bfloat16")
