"""The benchmark beside other frameworks: its arithmetic, what it leaves out, its page. No figure is judged here."""

from __future__ import annotations

import importlib
import json
import os
import venv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from polyfed.bench.loops import FLOWER, PFL, Environment
from polyfed.bench.work import Peer, Work, loss_difference, make_problem, written

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch) -> Any:
    """The benchmark's modules, which are scripts beside each other."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("works", "measure", "report", "memory", "run", "startup", "compute", "gpu")
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def timing(framework: str, seconds: float, method: str = "fedavg", share: float = 0.5) -> dict[str, Any]:
    figures = {"median_seconds": seconds, "updates_per_second": 10 / seconds, "share": share, "memory_mib": 300.0}
    return {"framework": framework, "method": method, "seconds": seconds, "lines": 5, "loss": 1.5} | figures


def record(**startup: float) -> dict[str, Any]:
    """A run as it is kept: two works, one with a framework that is missing."""
    a = {"key": "a", "name": "the MLP", "rounds": 3, "product_gflops": 200.0, "gaps": ["pfl: there is no pfl"]}
    f = {**a, "key": "f-apfl", "name": "APFL", "gaps": []}
    a["timings"] = [timing("polyfed", 0.2, share=0.7), timing("FedJAX", 0.4), timing("Flower", 2.0)]
    f["timings"] = [timing("polyfed", 0.5, "apfl"), timing("polyfed", 0.2)]
    methods = [{"method": "fedavg", "compile_seconds": 2.0, "compiled_later": 0}]
    started = {"import_seconds": 0.7, "first_process_seconds": 6.0, "second_process_seconds": 2.0, "methods": methods}
    machine = {"processor": "a processor", "cores": 2, "memory_gib": 8, "load_before": 0.0}
    found = {"machine": machine, "versions": {"polyfed": {"jax": "0.10"}}, "date": "2026-01-01", "works": [a, f]}
    return {**found, "startup": {**started, **startup}}


def test_the_works_are_those_that_are_promised(bench) -> None:
    works = bench.works.WORKS
    assert bench.works.operations(works["a"]) == 6 * 100 * 20 * 20 * (784 * 200 + 200 * 200 + 200 * 10)
    assert bench.works.operations(works["b"]) == bench.works.operations(works["a"]) / 10
    assert bench.works.operations(works["f-apfl"]) == 2 * bench.works.operations(works["a"])
    assert [len(cohort) for cohort in works["b"].cohorts or []][:3] == [10, 10, 10]
    for work in works.values():  # every framework takes whole passes
        assert work.steps * work.batch % work.rows == 0 or work.rows % (work.steps * work.batch) == 0
    assert {peer.environment.framework for peer in works["a"].peers} == {"PyTorch", "FedJAX", "pfl", "Flower"}


def test_the_page_of_benchmarks_is_the_one_that_is_written_from_the_kept_figures(bench, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(bench.report, "draw", lambda *_: None)
    kept = bench.report.PAGE.read_text()
    monkeypatch.setattr(bench.report, "PAGE", tmp_path / "page.md")
    bench.report.write_page()
    assert bench.report.PAGE.read_text() == kept


def test_goals_are_held_against_the_figures(bench) -> None:
    found = {goal: (measured, good) for goal, _, measured, good in bench.report.goals(record())}
    assert found == {
        "(a) share of the product rate": ("70%", True),
        "(a) times FedJAX": ("2.00", False),
        "(a) times Flower": ("10.00", True),
        "(f-apfl) time over FedAvg's": ("2.50", False),
    }


def test_the_page_shows_the_run_and_what_is_missing(bench, monkeypatch, tmp_path: Path) -> None:
    for name, file in {"CPU": "cpu.json", "GPU": "gpu.json", "PAGE": "page.md", "CHART": "chart.png"}.items():
        monkeypatch.setattr(bench.report, name, tmp_path / file)
    bench.report.keep(record())
    rates = {"copy_gb_per_second": 4000.0, "product_tflops": 300.0}
    row = {"work": "a", "clients": 100, "round_seconds": 0.002, "client_updates_per_second": 5e4, "tflops": 24.0}
    row |= {"share_of_memory_floor": 0.8, "times_torch": 400.0}
    gpu = {
        "machine": {"device": "a GPU", "jax": "0.11"},
        "date": "2026-01-01",
        **rates,
        "works": [row, row | {"compute": "bfloat16"}],
    }
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    bench.report.write_page()
    page = (tmp_path / "page.md").read_text()
    for words in (
        "| FedJAX | 0.4 | 2.00 |",
        "- (a) pfl: there is no pfl",
        "| fedavg | 2.0 | 0 |",
        "| 80% | 400 |",
        "| 100 | bfloat16 |",
        "| (a) 100 clients: client updates/s | 40,000 | 50,000 | yes |",
    ):
        assert words in page
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_types_are_set_side_by_side_on_the_same_seeds(bench, monkeypatch) -> None:
    accuracy = {"float32": [0.8, 0.9], "bfloat16": [0.78, 0.92]}
    asked = []

    def trained(case: Any, problem: Any, seed: int, compute: str) -> dict[str, float]:
        asked.append((seed, compute))
        return {"accuracy": accuracy[compute][seed], "round_seconds": 1.0 + seed if compute == "float32" else 0.5}

    monkeypatch.setattr(bench.compute, "trained", trained)
    monkeypatch.setattr(bench.compute.Case, "problem", lambda case: [None] * 7)
    found = bench.compute.beside(bench.compute.CASES["mlp"], 2)
    assert asked == [(seed, compute) for seed in (0, 1) for compute in ("float32", "bfloat16")]
    assert found["clients"] == 7
    summary = bench.compute.summary(found)
    assert summary["accuracy"] == summary["accuracy_bfloat16"] == pytest.approx(0.85)
    assert summary["difference"] == pytest.approx(0)
    assert summary["error"] == pytest.approx(0.02)
    assert summary["times_as_fast"] == pytest.approx(2)


def test_a_gpus_floor_is_the_weights_traffic(bench) -> None:
    work = replace(bench.works.WORKS["a"], clients=3, steps=2)
    assert bench.gpu.traffic(work, 10, "float32") == 16 * 10 * 6
    assert bench.gpu.traffic(work, 10, "bfloat16") == 12 * 10 * 6


@pytest.mark.full
def test_a_work_is_measured_and_a_missing_environment_is_named(bench, tmp_path: Path) -> None:
    nowhere = Environment("pfl", tmp_path / "nowhere", "--pfl", ("pfl",))
    venv.create(tmp_path / "empty")
    half_made = Environment("Flower", tmp_path / "empty" / "bin" / "python", "--flower", ("flwr", "ray"))
    peers = tuple(Peer(environment, Path("no-such-loop.py"), "fedavg", 1) for environment in (nowhere, half_made))
    work = Work(
        *("small", "linear", 4, 2, 5, 3, peers),
        rows=10,
        features=(6,),
        cohort=2,
    )
    found = bench.measure.measure("small", work, 1, 1, lambda _: None)
    assert found["gaps"] == [
        f"pfl: there is no {tmp_path / 'nowhere'}; `make pfl` makes it",
        f"Flower: {half_made.python} cannot import flwr; `make flower` makes it",
    ]
    (ours,) = found["timings"]
    assert (ours["framework"], ours["method"], ours["lines"]) == ("polyfed", "fedavg", 7)
    assert ours["seconds"] > 0
    assert ours["updates_per_second"] == pytest.approx(2 / ours["seconds"])
    expected = bench.works.operations(work) / ours["seconds"] / found["product_gflops"] / 1e9
    assert ours["share"] == pytest.approx(expected)


def test_all_frameworks_read_the_same_file() -> None:
    work = Work("small", "mlp", 3, 2, 5, 4, (), rows=10, features=(2, 3))
    with written(make_problem(work)) as place:
        first = place.read_bytes()
    with written(make_problem(work)) as place:
        assert place.read_bytes() == first


@pytest.mark.parametrize("environment", [PFL, FLOWER], ids=lambda environment: environment.framework)
def test_the_frameworks_compute_what_the_engine_computes(environment: Environment, bench) -> None:
    if gap := environment.gap():
        pytest.skip(gap)
    peer = next(peer for peer in bench.works.ALL if peer.environment == environment)
    found = loss_difference(replace(bench.works.WORKS["e"], rows=20), peer)
    assert found is not None
    assert found < 1e-5


@pytest.mark.full
def test_memory_is_that_of_a_process_and_its_children(bench) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this system does not say what a process holds")
    with bench.memory.Watch(os.getpid()) as watch:
        pass
    assert watch.peak is not None
    assert watch.peak > 50
    assert os.getpid() in bench.memory.family(os.getppid())
