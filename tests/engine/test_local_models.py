"""A bank of pure local models: what it holds, when training stops, who shares it, and how it survives a kill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import safe_open

import polyfed as pf
from polyfed.engine import local_models as making
from polyfed.engine.loop import PlannedRun
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, compare
from polyfed.studies.tuning.search import tune
from tests.conftest import few, unequal_clients

A = pf.algorithms
L2 = 0.01
TRAINED = {"plm_epochs": 3, "plm_lr": 0.3, "plm_batch": 4}
BANK: dict[str, Any] = {"epochs": 3, "lr": 0.3, "batch": 4}
METHODS = {
    "flix": A.FLIX(alpha=0.4, lr=0.1, batch=4, **TRAINED),
    "scafflix": A.Scafflix(alpha=0.6, lr=0.08, p=0.4, batch=4, **TRAINED),
    "diana": A.DIANA(alpha=[0.1, 0.2, 0.3, 0.5, 0.9, 1.0], lr=0.1, **TRAINED),
}


def softmax_loss(w: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean loss of a linear model without the ridge, and its gradient, by hand."""
    logits = x @ w + b
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = odds / odds.sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(shares[np.arange(len(y)), y]))
    shares[np.arange(len(y)), y] -= 1
    return float(loss), x.T @ shares / len(y), shares.mean(axis=0)


def descent(rows: dict[str, Any], lrs: list[float], tolerance: float = 0.0, patience: int | None = None) -> Any:
    """Gradient descent on one client's rows in NumPy: (w, b), the gradient norm there, and the steps taken."""
    x, y = rows["train"]
    w, b = np.zeros((x.shape[1], 3)), np.zeros(3)

    def gradient(w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, gw, gb = softmax_loss(w, b, x, y)
        return gw + L2 * w, gb + L2 * b

    def norm(w: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(sum(np.sum(part**2) for part in gradient(w, b))))

    best, lowest, since, steps = (w, b), softmax_loss(w, b, *rows["validation"])[0], 0, 0
    for lr in lrs:
        if norm(w, b) <= tolerance or (patience is not None and since == patience):
            break
        gw, gb = gradient(w, b)
        w, b, steps = w - lr * gw, b - lr * gb, steps + 1
        loss = softmax_loss(w, b, *rows["validation"])[0]
        since = 0 if loss < lowest else since + 1
        if loss < lowest:
            best, lowest = (w, b), loss
    end = (w, b) if patience is None else best
    return end, norm(*end), steps


@pytest.mark.parametrize("clients", [[0, 1, 2, 3, 4, 5], [4], [5, 0, 1, 1, 3], []], ids=str)
def test_models_that_are_read_are_those_of_the_file(problem, tmp_path: Path, clients: list[int]) -> None:
    bank = pf.local_models(problem, tmp_path, **BANK)
    models, norms = bank.rows(np.array(clients, int))
    with safe_open(bank.folder / "models.safetensors", framework="np") as file:
        for name, leaf in models.items():
            np.testing.assert_array_equal(leaf, file.get_tensor(f"params/{name}")[np.array(clients, int)])
        np.testing.assert_array_equal(norms, file.get_tensor("grad_norm")[np.array(clients, int)])


def test_a_bank_whose_file_was_cut_is_named(problem, tmp_path: Path) -> None:
    bank = pf.local_models(problem, tmp_path, **BANK)
    file = bank.folder / "models.safetensors"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(pf.PolyfedError, match="has been cut"):
        bank.rows(np.arange(6))


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        ({"epochs": 7, "lr": 0.5}, {}),
        ({"epochs": 9, "lr": pf.Decay(0.5, 0.7)}, {}),
        ({"epochs": 60, "lr": 0.5, "tolerance": 0.1}, {"tolerance": 0.1}),
        ({"epochs": 40, "lr": 3.0, "patience": 2}, {"patience": 2}),
        ({"epochs": 40, "lr": 3.0, "patience": 5, "tolerance": 0.05}, {"patience": 5, "tolerance": 0.05}),
    ],
    ids=["epochs", "schedule", "norm", "patience", "both"],
)
def test_a_bank_is_what_gradient_descent_by_hand_gives(problem, tmp_path: Path, options, stops) -> None:
    bank = pf.local_models(problem, tmp_path, batch="full", dtype="float64", **options)
    lr, epochs = options["lr"], options["epochs"]
    lrs = [lr.initial * lr.rate**t for t in range(epochs)] if isinstance(lr, pf.Decay) else [lr] * epochs
    found = [descent(rows, lrs, **stops) for rows in unequal_clients().values()]
    for place, ((w, b), norm, steps) in enumerate(found):
        np.testing.assert_allclose(bank.params["w"][place], w, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(bank.params["b"][place], b, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(bank.grad_norms[place], norm, rtol=1e-10)
        assert bank.epochs[place] == steps
    if stops:
        steps = [steps for *_, steps in found]
        assert len(set(steps)) > 1  # clients stop at their own times
        assert min(steps) < epochs
    if "tolerance" in stops and "patience" not in stops:
        assert all(norm <= 0.1 for _, norm, steps in found if steps < epochs)


def test_without_epochs_a_bank_has_the_minimisers(problem, tmp_path: Path) -> None:
    bank = pf.local_models(problem, tmp_path, dtype="float64")
    assert bank.grad_norms.max() < 1e-11
    np.testing.assert_allclose(bank.params["w"], problem.local_models().params["w"], atol=1e-9)
    assert not len(bank.far)


def test_a_rule_that_never_says_stop_changes_no_bit_of_the_batches(problem, tmp_path: Path) -> None:
    plain = pf.local_models(problem, tmp_path, dtype="float64", **BANK)
    ruled = pf.local_models(problem, tmp_path, dtype="float64", tolerance=1e-9, **BANK)
    assert plain.folder != ruled.folder
    assert (ruled.epochs == 3).all()
    np.testing.assert_allclose(ruled.params["w"], plain.params["w"], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "store"),
    few([(name, store) for name in METHODS for store in ("device", "disk")], ("flix", "device"), ("scafflix", "disk")),
)
def test_a_run_with_the_bank_is_the_run_without(problem, tmp_path: Path, name: str, store: Any) -> None:
    """Of the bank's own seed; stopped in between, with a checkpoint that does not hold the models again."""
    options: dict[str, Any] = {"rounds": 4, "eval_every": 2, "participation": 3, "dtype": "float64", "store": store}
    alone = pf.simulate(problem, METHODS[name], **options)
    shared: dict[str, Any] = options | {"local_models": tmp_path / "banks", "checkpoint": tmp_path / "run"}
    short: dict[str, Any] = shared | {"rounds": 2}
    pf.simulate(problem, METHODS[name], **short)
    found = pf.simulate(problem, METHODS[name], **shared, resume=tmp_path / "run")
    for a, b in zip(_end(found), _end(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    kept = max((tmp_path / "run").glob("round-*/clients.safetensors"))
    with safe_open(kept, framework="np") as file:
        assert not [array for array in file.keys() if "own" in array or "grad_norm" in array]  # noqa: SIM118


def _end(result: pf.Result) -> list[np.ndarray]:
    arrays = (result.simulation.server, result.client_state, result.personal(1))
    return [*map(np.asarray, jax.tree.leaves(arrays)), result.history.drop(columns="seconds").to_numpy(float)]


def test_states_outside_the_devices_have_no_room_for_the_models(problem, tmp_path: Path) -> None:
    """FLIX keeps its alpha_i, one number; the models are those of the file."""
    run = Simulation(problem, METHODS["flix"], store="host", local_models=tmp_path, dtype="float64")
    assert run.residence._rows.row_bytes == 8  # pyright: ignore
    run.prepare()
    bank = pf.local_models(problem, tmp_path, dtype="float64", **BANK)
    np.testing.assert_array_equal(run.client_state.own["w"], bank.params["w"])
    assert not bank.params["w"].flags.writeable


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of the banks that were made."""
    made: list[Path] = []
    real = making.Making.run

    def counted(self: Any, folder: Path, *given: Any) -> None:
        made.append(folder)
        real(self, folder, *given)

    monkeypatch.setattr(making.Making, "run", counted)
    return made


@pytest.mark.full
def test_methods_alphas_and_seeds_share_one_bank(problem, tmp_path: Path, makings: list[Path]) -> None:
    flix, scafflix = METHODS["flix"], METHODS["scafflix"]
    planned = [PlannedRun(problem, method, seed) for method in (flix, scafflix) for seed in (0, 1)]
    planned.append(PlannedRun(problem, A.FLIX(alpha=0.9, lr=0.1, batch=4, **TRAINED), 7))
    planned.append(PlannedRun(problem, A.FLIX(alpha=1.0, lr=0.1, **TRAINED), 7))  # mixes nothing in
    results = simulate_all(planned, rounds=2, local_models=tmp_path)
    assert len(makings) == 1
    bank = pf.local_models(problem, tmp_path, **BANK)
    assert len(makings) == 1
    for result in results[:-1]:
        mixture = getattr(result.client_state, "mixture", result.client_state)
        np.testing.assert_array_equal(mixture.own["w"], bank.params["w"])
    assert results[-1].simulation.bank is None


def test_runs_of_any_seed_start_where_their_local_models_started(tmp_path: Path, federation) -> None:
    """Nets that were started apart do not mix well."""
    net = pf.Problem(federation, pf.models.mlp([5]), "softmax", l2=L2)
    runs = [Simulation(net, METHODS["flix"], seed=seed, local_models=tmp_path) for seed in (0, 3)]
    bank = runs[0].bank
    assert bank is not None
    for run in runs:
        for ours, banks in zip(jax.tree.leaves(run.global_params), jax.tree.leaves(bank.start), strict=True):
            np.testing.assert_array_equal(ours, banks)
    assert runs[1].bank is bank


CONFIG: dict[str, Any] = {
    "data": {"source": "digits", "clients": 4},
    "problem": {"l2": 0.01},
    "algorithm": {"alpha": 0.5, "lr": 0.1, **TRAINED},
    "compare": [{"name": "flix"}, {"name": "scafflix", "p": 0.5, "lr": 0.05}],
    "run": {"rounds": 2, "eval_every": 2, "seeds": [0, 1], "finetune_steps": 0, "save_models": False},
}


@pytest.mark.full
def test_a_config_shares_one_bank_among_methods_seeds_alone_and_candidates(tmp_path: Path, makings: list[Path]) -> None:
    run = CONFIG["run"] | {"local_models": "banks"}
    space = {"flix": {"alpha": [0.2, 0.7]}, "scafflix": {"alpha": [0.2, 0.7]}}
    sections = CONFIG | {"run": run, "tune": {"budget": 2, "rounds": 2, "space": space}}
    config = make_config(sections, folder=tmp_path)
    records = compare(config, tmp_path / "out", Options(say=lambda _: None))
    assert len(records) == 4
    tune(config)
    assert makings == [tmp_path / "banks" / makings[0].name]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"l2": 0.5}, "l2 was 0.01, now it is 0.5"),
        ({"rows": 1}, "data was "),
        ({"method": A.FLIX(alpha=0.5, lr=0.1, plm_epochs=3, plm_lr=0.7, plm_batch=4)}, "lr was 0.3, now it is 0.7"),
        ({"init": "ones"}, 'init was "zeros", now it is "ones"'),
        ({"dtype": "float64"}, 'dtype was "float32", now it is "float64"'),
    ],
    ids=["ridge", "rows", "training", "start", "precision"],
)
def test_a_bank_of_something_else_is_refused_by_name(problem, tmp_path: Path, change: Any, named: str) -> None:
    bank = pf.local_models(problem, tmp_path, **BANK)
    federation = pf.Federation.from_arrays(unequal_clients(change.get("rows", 0)), classes=3)
    other = pf.Problem(federation, pf.models.linear(), "softmax", l2=change.get("l2", L2))
    options = {key: change[key] for key in ("init", "dtype") if key in change}
    with pytest.raises(pf.PolyfedError, match=f"{bank.folder.name}: this bank of local models is .*{named}"):
        pf.simulate(other, change.get("method", A.FLIX(alpha=0.5, lr=0.1)), rounds=1, local_models=bank, **options)


def test_a_method_takes_its_settings_from_the_bank_it_is_given(problem, tmp_path: Path) -> None:
    bank = pf.local_models(problem, tmp_path, **BANK)
    result = pf.simulate(problem, A.FLIX(alpha=0.4, lr=0.1, batch=4), rounds=2, local_models=bank)
    assert isinstance(result.algorithm, A.FLIX)
    assert result.algorithm.local_training == bank.training
    expected = pf.simulate(problem, METHODS["flix"], rounds=2)
    np.testing.assert_allclose(result.global_params["w"], expected.global_params["w"], rtol=1e-6)


@pytest.mark.full
def test_rows_that_do_not_train_do_not_matter(tmp_path: Path, makings: list[Path]) -> None:
    """Test rows never; validation rows where they say when to stop."""
    clients, others = unequal_clients(), unequal_clients()
    for rows in others.values():
        rows["test"], rows["validation"] = rows["validation"], rows["test"]
    first, second = (
        pf.Problem(pf.Federation.from_arrays(given, classes=3), pf.models.linear(), "softmax", l2=L2)
        for given in (clients, others)
    )
    for problem in (first, second):
        pf.local_models(problem, tmp_path, **BANK)
    assert len(makings) == 1
    for problem in (first, second):
        pf.local_models(problem, tmp_path, patience=1, **BANK)
    assert len(makings) == 3


def test_a_report_that_a_kill_left_unwritten_is_written_by_the_next_call(problem, tmp_path: Path, makings) -> None:
    report = pf.local_models(problem, tmp_path, **BANK).folder / "clients.csv"
    text = report.read_text()
    report.unlink()
    pf.local_models(problem, tmp_path, **BANK)
    assert report.read_text() == text
    assert len(makings) == 1


def test_a_making_of_other_clients_in_the_same_place_is_refused(problem, tmp_path: Path) -> None:
    bank = pf.local_models(problem, tmp_path, **BANK)
    about = json.loads((bank.folder / "bank.json").read_text())
    about["identity"]["l2"] = 7
    (bank.folder / "bank.json").write_text(json.dumps(about))
    with pytest.raises(pf.PolyfedError, match=r"this bank of local models is of something else: l2 was 7, now it is"):
        pf.local_models(problem, tmp_path, **BANK)
    (bank.folder / "bank.json").unlink()
    with pytest.raises(pf.PolyfedError, match="this bank of local models cannot be read"):
        pf.local_models(problem, tmp_path, **BANK)


def test_it_says_how_many_models_are_far_from_stationary(problem, tmp_path: Path, caplog) -> None:
    near = pf.local_models(problem, tmp_path, epochs=400, lr=0.5, batch="full")
    assert not caplog.messages
    far = pf.local_models(problem, tmp_path, epochs=1, lr=0.01, batch="full")
    assert len(near.far) == 0
    assert (far.grad_norms > 0.1 * far.start_norms).all()
    [message] = caplog.messages
    worst = problem.federation.clients[int(np.argmax(far.grad_norms))]
    assert "6 of 6 local models are far from stationary" in message
    assert f"client '{worst}'" in message
    table = far.report
    assert table["client"].tolist() == list(problem.federation.clients)
    assert (far.folder / "clients.csv").read_text().count("\n") == 7


def test_with_a_tolerance_far_is_who_did_not_reach_it(problem, tmp_path: Path) -> None:
    bank = pf.local_models(problem, tmp_path, epochs=30, lr=0.5, batch="full", tolerance=0.08)
    missed = np.flatnonzero(bank.grad_norms > 0.08)
    assert 0 < len(missed) < 6
    np.testing.assert_array_equal(bank.far, missed)


@pytest.mark.full
def test_a_population_has_the_same_bank_as_a_federation(problem, federation, tmp_path: Path) -> None:
    people = pf.Population.of(federation)
    other = pf.Problem(people, pf.models.linear(), "softmax", l2=L2)
    ours, theirs = (pf.local_models(p, tmp_path, dtype="float64", chunk=1, **BANK) for p in (problem, other))
    assert ours.folder != theirs.folder
    np.testing.assert_allclose(theirs.params["w"], ours.params["w"], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "local_models: epochs must be a whole number, at least 1"),
        ({"epochs": 2, "lr": -1.0}, "local_models: lr must be .* found -1"),
        ({"patience": 2}, "local_models: patience counts epochs"),
        ({"epochs": 3, "lr": 1e30, "batch": 4}, "the local model of client 'site-[0-5]' is not finite"),
    ],
    ids=["epochs", "stepsize", "patience", "diverges"],
)
def test_what_makes_no_sense_is_refused(problem, tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        pf.local_models(problem, tmp_path, **options)


def test_a_net_needs_epochs_and_patience_needs_validation_rows(federation, tmp_path: Path) -> None:
    net = pf.Problem(federation, pf.models.mlp([5]), "softmax")
    with pytest.raises(pf.PolyfedError, match="local_models: epochs must be given"):
        pf.local_models(net, tmp_path)
    rows = {name: {"train": parts["train"], "test": parts["test"]} for name, parts in unequal_clients().items()}
    bare = pf.Problem(pf.Federation.from_arrays(rows, classes=3), pf.models.linear(), "softmax")
    with pytest.raises(pf.PolyfedError, match="plm_patience needs validation rows"):
        pf.local_models(bare, tmp_path, epochs=2, patience=1)
    assert not list(tmp_path.rglob("models.safetensors"))
    assert os.listdir(tmp_path)  # what was begun goes on
