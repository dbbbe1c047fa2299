"""Checkpoints: atomic, refused when they are of another run, never pickled."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import polyfed as pf
from polyfed.engine.checkpoint import checkpoint, tensors

METHOD = pf.algorithms.Scaffold(local_steps=2, batch=4)


def train(problem, folder: Path, **options):
    return pf.simulate(problem, METHOD, **{"rounds": 4, "participation": 3, "checkpoint": folder, **options})


def test_the_two_newest_checkpoints_are_kept_and_older_ones_go(problem, tmp_path: Path) -> None:
    train(problem, tmp_path, rounds=5, checkpoint_every=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000000004", "round-000000005"]
    assert {path.name for path in (tmp_path / "round-000000005").iterdir()} == {
        "state.safetensors",
        "clients.safetensors",
        "meta.json",
        "digests.json",
    }


@pytest.mark.parametrize("name", ["state.safetensors", "clients.safetensors", "meta.json", "digests.json"])
def test_flipped_bits_are_noticed_and_the_checkpoint_before_is_used(problem, tmp_path: Path, caplog, name: str) -> None:
    whole = train(problem, tmp_path / "whole", rounds=8)
    train(problem, tmp_path / "run", rounds=6, checkpoint_every=4)
    file = tmp_path / "run" / "round-000000006" / name
    content = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content), 3, replace=False):
        content[place] ^= 1 << rng.integers(8)
    file.write_bytes(content)
    resumed = train(problem, tmp_path / "run", rounds=8, resume=tmp_path / "run")
    assert "round-000000006: this checkpoint is damaged" in caplog.text
    assert "going on from round-000000004" in caplog.text
    for left, right in zip(*(jax.tree.leaves(r.simulation.server) for r in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(left, right)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["round-000000004", "round-000000008"]


def test_a_damaged_checkpoint_is_written_anew(problem, tmp_path: Path) -> None:
    train(problem, tmp_path, rounds=6, checkpoint_every=4)
    file = tmp_path / "round-000000006" / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    train(problem, tmp_path, rounds=6, resume=tmp_path)
    assert checkpoint.latest(tmp_path) == tmp_path / "round-000000006"
    assert not file.read_bytes().endswith(b"?")


def test_a_checkpoint_of_a_version_without_digests_is_read(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    (tmp_path / "round-000000004" / "digests.json").unlink()
    assert checkpoint.latest(tmp_path) == tmp_path / "round-000000004"
    (tmp_path / "round-000000004" / "digests.json").write_text("{}")
    with pytest.raises(pf.PolyfedError, match=r"damaged: digests.json says nothing of"):
        checkpoint.latest(tmp_path)


def test_the_owner_alone_can_read_states(problem, tmp_path: Path) -> None:
    train(problem, tmp_path / "new")
    kept = tmp_path / "new" / "round-000000004"
    assert [oct(path.stat().st_mode & 0o777) for path in (tmp_path / "new", kept)] == ["0o700", "0o700"]
    assert {oct(path.stat().st_mode & 0o777) for path in kept.glob("*.safetensors")} == {"0o600"}


def test_what_a_crash_left_half_written_is_passed_over(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    half = tmp_path / ".writing-abc"
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half")
    assert checkpoint.latest(tmp_path) == tmp_path / "round-000000004"
    resumed = pf.simulate(problem, METHOD, rounds=6, participation=3, resume=tmp_path)
    assert resumed.history["round"].iloc[-1] == 6


def test_a_failed_write_leaves_the_old_checkpoint(problem, tmp_path: Path, monkeypatch) -> None:
    train(problem, tmp_path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save_rows", full)
    with pytest.raises(OSError, match="no space"):
        train(problem, tmp_path, rounds=6, resume=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["round-000000004"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed was 0, now it is 1"),
        ({"participation": 2}, "participation was 3, now it is 2"),
        ({"init": "ones"}, "init was null"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_says_why(problem, tmp_path: Path, change, named) -> None:
    train(problem, tmp_path)
    options = {"rounds": 6, "participation": 3, "resume": tmp_path, **change}
    with pytest.raises(pf.PolyfedError, match=f"of another run: {named}"):
        pf.simulate(problem, METHOD, **options)


def test_a_checkpoint_of_another_stepsize_is_refused(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    other = pf.algorithms.Scaffold(local_steps=2, batch=4, lr=0.2)
    with pytest.raises(pf.PolyfedError, match=r"algorithm\.lr was 0\.1, now it is 0\.2"):
        pf.simulate(problem, other, rounds=6, participation=3, resume=tmp_path)


@pytest.mark.full
def test_a_checkpoint_of_another_model_of_the_same_shapes_is_refused(problem, tmp_path: Path) -> None:
    def of(activation: str) -> pf.Problem:
        return pf.Problem(problem.federation, pf.models.mlp([5], activation), "softmax")

    train(of("relu"), tmp_path)
    with pytest.raises(pf.PolyfedError, match="of another run: model was"):
        pf.simulate(of("tanh"), METHOD, rounds=6, participation=3, resume=tmp_path)


def test_a_new_run_replaces_the_checkpoint_of_an_older_one(problem, tmp_path: Path) -> None:
    train(problem, tmp_path, seed=0)
    train(problem, tmp_path, seed=1)
    meta = json.loads((tmp_path / "round-000000004" / "meta.json").read_text())
    assert meta["identity"]["seed"] == 1


def test_a_checkpoint_of_other_data_is_refused(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    clients = [(np.random.default_rng(i).normal(size=(9, 4)), np.arange(9) % 3) for i in range(6)]
    other = pf.Problem(pf.Federation.from_arrays(clients, classes=3), pf.models.linear(), "softmax", l2=0.01)
    with pytest.raises(pf.PolyfedError, match="of another run: data was"):
        pf.simulate(other, METHOD, rounds=6, participation=3, resume=tmp_path)


def test_a_checkpoint_of_another_precision_or_algorithm_is_refused(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    with pytest.raises(pf.PolyfedError, match="float32"):
        pf.simulate(problem, METHOD, rounds=6, participation=3, resume=tmp_path, dtype="float64")
    with pytest.raises(pf.PolyfedError, match=r"arrays in this file are not those|another run"):
        pf.simulate(problem, pf.algorithms.FedAvg(), rounds=6, participation=3, resume=tmp_path)


def test_a_damaged_checkpoint_is_refused_in_one_sentence(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    state = tmp_path / "round-000000004" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:40])
    with pytest.raises(pf.PolyfedError, match=r"damaged: state\.safetensors is not as it was written, and there is no"):
        pf.simulate(problem, METHOD, rounds=6, participation=3, resume=tmp_path)


def test_there_must_be_something_to_resume_from(problem, tmp_path: Path) -> None:
    with pytest.raises(pf.PolyfedError, match="no checkpoint here"):
        pf.simulate(problem, METHOD, rounds=6, resume=tmp_path)


def test_fewer_rounds_than_the_checkpoint_has_are_refused(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    with pytest.raises(pf.PolyfedError, match="round 4, beyond the 2"):
        pf.simulate(problem, METHOD, rounds=2, participation=3, resume=tmp_path)


def test_the_state_is_safetensors_and_the_rest_json(problem, tmp_path: Path) -> None:
    train(problem, tmp_path)
    meta = json.loads((tmp_path / "round-000000004" / "meta.json").read_text())
    assert meta["counters"]["round"] == 4
    assert [row["round"] for row in meta["history"]] == [0, 1, 2, 3, 4]


def test_a_tree_survives_the_file_bit_by_bit(tmp_path: Path) -> None:
    tree = {"a": [np.array([1.5, -0.0], np.float32), np.int32(3)], "b": (np.array([[True, False]]), np.float64(np.pi))}
    checkpoint.save_tree(tmp_path / "tree.safetensors", tree)
    found = checkpoint.load_tree(tmp_path / "tree.safetensors", tree)
    assert found["a"][0].tobytes() == tree["a"][0].tobytes()
    assert found["b"][1] == np.pi
    assert isinstance(found["b"], tuple)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_rows_that_are_read_back_leave_memory_again(tmp_path, monkeypatch) -> None:
    def mapped() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile"))

    monkeypatch.setattr(tensors, "READ_BYTES", 1 << 20)
    row, count = np.zeros(1 << 12, np.float32), 4096
    blocks = ({"x": np.full((256, *row.shape), first, np.float32)} for first in range(0, count, 256))
    tensors.save_rows(tmp_path / "rows", blocks, count)
    before, most, done = mapped(), 0, 0
    for block in tensors.load_rows(tmp_path / "rows", {"x": row}, count):
        assert np.all(block["x"] == np.arange(done, done + len(block["x"]))[:, None] // 256 * 256)
        done, most = done + len(block["x"]), max(most, mapped() - before)
    assert done == count
    assert most < 16 << 20  # of 64 MiB
