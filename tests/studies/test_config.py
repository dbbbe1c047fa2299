"""Configs: what is filled in, and every mistake by its name."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.compress import RandK
from polyfed.studies.config import make_config, read_config

GOOD = {
    "data": {"source": "digits", "clients": 4},
    "problem": {"model": "mlp", "hidden": [8], "l2": 0.1},
    "algorithm": {"name": "fedavg", "lr": {"initial": 0.1, "rate": 0.99}},
    "run": {"rounds": 3, "participation": {"probability": 0.5}},
}


def changed(path: str, value) -> dict:
    sections = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place = sections
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return sections


def test_a_config_becomes_a_problem_and_an_algorithm() -> None:
    config = make_config(GOOD)
    assert config.methods[0].algorithm == pf.algorithms.FedAvg(lr=pf.Decay(0.1, 0.99))
    assert config.run.participation == pf.Bernoulli(0.5)
    assert len(config.problem) == 4
    assert config.problem.l2 == 0.1


def test_what_a_run_directory_keeps_is_the_whole_config() -> None:
    config = make_config(GOOD)
    resolved = config.resolved(config.methods[0])
    assert resolved["algorithm"]["lr"] == {"initial": 0.1, "rate": 0.99}
    assert resolved["algorithm"]["weighting"] == "size"
    assert resolved["run"]["participation"] == {"probability": 0.5}
    assert resolved["problem"]["loss"] == "softmax"
    assert resolved["problem"]["activation"] == "relu"
    assert resolved["data"]["validation"] == 0.1
    assert resolved["algorithm"]["label"] == "fedavg"
    again = make_config(resolved)
    assert again.methods == config.methods
    assert again.run == config.run


@pytest.mark.parametrize(("source", "loss"), [({"source": "digits"}, "softmax"), ({"source": "quadratics"}, "squared")])
def test_the_loss_follows_from_the_targets(source, loss) -> None:
    config = make_config({"data": source, "algorithm": {"name": "local"}})
    assert config.problem.loss.name == loss


def test_mixing_weights_and_compressors_come_from_toml() -> None:
    options = {"name": "diana", "alpha": [0.1, 0.2, 0.3, 1.0], "compressor": {"name": "rand_k", "k": 5}}
    config = make_config({**GOOD, "problem": {}, "algorithm": options})
    method = config.methods[0].algorithm
    assert isinstance(method, pf.algorithms.DIANA)
    resolved = method.resolve(config.problem)
    assert np.asarray(resolved.alpha).tolist() == [0.1, 0.2, 0.3, 1.0]
    assert resolved.compressor == RandK(5)
    assert make_config(config.resolved(config.methods[0])).methods == config.methods


def test_compare_entries_share_what_fits_them() -> None:
    sections = {
        "data": {"source": "digits"},
        "algorithm": {"lr": 0.3, "mu": 0.7, "local_steps": 4},
        "compare": [{"name": "fedavg"}, {"name": "fedprox", "lr": 0.1}],
    }
    average, prox = (method.algorithm for method in make_config(sections).methods)
    assert average == pf.algorithms.FedAvg(lr=0.3, local_steps=4)
    assert prox == pf.algorithms.FedProx(lr=0.1, mu=0.7, local_steps=4)


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("run.rounds=7", ("run", "rounds"), 7),
        ("algorithm.weighting=uniform", ("methods", "weighting"), "uniform"),
        ('algorithm.batch="full"', ("methods", "batch"), "full"),
        ("run.dtype=float64", ("run", "dtype"), "float64"),
    ],
)
def test_set_changes_a_key(change, key, value) -> None:
    config = make_config(GOOD, changes=[change])
    owner = config.run if key[0] == "run" else config.methods[0].algorithm
    assert getattr(owner, key[1]) == value


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (changed("dta.source", "x"), r"unknown section \[dta\]; did you mean 'data'"),
        ({"algorithm": {"name": "local"}}, "data.source is missing"),
        ({"data": {"source": "digits"}}, "algorithm.name is missing"),
        (changed("problem.model", "mpl"), "unknown problem.model 'mpl'; did you mean 'mlp'"),
        (changed("problem.loss", "hinge"), "unknown problem.loss 'hinge'"),
        (changed("problem.hiden", [3]), "unknown key problem.hiden for mlp; did you mean 'hidden'"),
        (changed("run.round", 3), "unknown key run.round; did you mean 'rounds'"),
        (changed("run.rounds", "many"), "run.rounds must be a whole number, found 'many'"),
        (changed("run.rounds", 0), "run.rounds must be at least 1, found 0"),
        (changed("run.rounds", True), "run.rounds must be a whole number, found True"),
        (changed("run.dtype", "half"), "run.dtype must be float32 or float64, found 'half'"),
        (changed("run.compute", "bf16"), "run.compute must be 'float32', .* or 'bfloat16', found 'bf16'; did you mean"),
        (changed("run.compute", 16), "run.compute must be a word, found 16"),
        (changed("run.init", "twos"), "run.init must be zeros, ones or random"),
        (changed("run.alone", 1), "run.alone must be true or false, found 1"),
        (changed("run.seeds", [1, 1]), "run.seeds repeats a seed"),
        (changed("run.seeds", 3), "run.seeds must be a list"),
        (changed("run.participation", {"chance": 0.5}), "run.participation must be a number or {probability = q}"),
        (changed("algorithm.lr", {"initial": 0.1}), r"algorithm.lr must be a number, {initial, rate}"),
        (changed("algorithm.lr", -1), "fedavg: lr must be above 0, found -1"),
        (changed("algorithm.server_lr", {"initial": 1.0, "rate": 0.9}), "fedavg: server_lr must be a number"),
        (changed("run.finetune_batch", "half"), "run.finetune_batch must be a whole number"),
        (changed("run.finetune_batch", 0), "run.finetune_batch"),
        (changed("run.finetune_lr", -1.0), "run.finetune_lr must be above 0"),
        (changed("problem.model", ["a"]), "unknown problem.model"),
        (
            {**GOOD, "algorithm": {"lrr": 3}, "compare": [{"name": "local"}]},
            "no method of .* has algorithm.lrr; .*'lr'",
        ),
        (changed("compare", [{"name": "fedavgg"}]), "config: unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
        (changed("compare", [{"name": "local"}, {"name": "local"}]), "two .* entries are labelled 'local'"),
        (changed("compare", [{"label": "x"}]), r"compare\[0\].name is missing"),
        (changed("compare", {"name": "local"}), "compare must be a list of tables"),
        (changed("compare", [{"name": "local", "finetune": "yes"}]), r"compare\[0\].finetune must be true or false"),
    ],
)
def test_a_mistake_is_named(sections, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        make_config(sections)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rounds=3", "expected section.key=value"),
        ("run.rounds", "expected section.key=value"),
        ("rnu.rounds=3", "unknown section 'rnu'; did you mean 'run'"),
    ],
)
def test_a_wrong_set_is_named(change, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        make_config(GOOD, changes=[change])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "digit"}, "did you mean 'digits'"),
        ({"source": "digits", "clints": 3}, "clints"),
        ({"source": "synthetic", "alpha": "x"}, "alpha"),
        ({"source": "csv", "path": "none.csv", "client": "a", "target": "b"}, "none.csv"),
    ],
)
def test_a_mistake_in_the_data_is_named_with_the_config(data, message) -> None:
    config = make_config({"data": data, "algorithm": {"name": "local"}}, where="mine.toml")
    with pytest.raises(pf.PolyfedError, match=f"mine.toml: .*{message}"):
        _ = config.problem


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[data]\nsource = digits\n")
    with pytest.raises(pf.PolyfedError, match=r"broken.toml: not valid TOML: .*line 2"):
        read_config(tmp_path / "broken.toml")


def test_a_path_is_relative_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[data]\nsource = "csv"\npath = "t.csv"\n[algorithm]\nname = "local"\n')
    assert read_config(tmp_path / "own.toml").data["path"] == str(tmp_path / "t.csv")
