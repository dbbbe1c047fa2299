"""What trackers are told is what they keep: their files are read back."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, run
from polyfed.studies.run_directory import read_run

CONFIG: dict[str, Any] = {
    "data": {"source": "synthetic", "clients": 3, "sizes": 20, "seed": 1},
    "problem": {"l2": 0.01},
    "algorithm": {"name": "fedavg", "lr": 0.1, "local_steps": 2},
    "run": {"rounds": 4, "eval_every": 2, "alone": False, "finetune_steps": 0, "save_models": False},
}


def simulated(callback: pf.Callback) -> pf.Result:
    config = make_config(CONFIG)
    return pf.simulate(config.problem, config.methods[0].algorithm, rounds=4, eval_every=2, callbacks=[callback])


def events(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], str]:
    """The curves and the text of a TensorBoard folder: records of a length, its checksum, an event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    curves: dict[str, list[tuple[int, float]]] = {}
    text = ""
    [file] = folder.glob("events.*")
    content, place = file.read_bytes(), 0
    while place < len(content):
        (size,) = struct.unpack_from("<Q", content, place)
        event = Event.FromString(content[place + 12 : place + 12 + size])
        place += 16 + size
        for value in event.summary.value:
            if value.HasField("simple_value"):
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
            else:
                text += value.tensor.string_val[0].decode()
    return curves, text


def test_tensorboard_has_every_number_of_the_history(tmp_path: Path) -> None:
    result = simulated(pf.track.TensorBoard(tmp_path))
    curves, text = events(tmp_path)
    for name in ("objective", "bits_up", "personal_train_loss"):
        assert [step for step, _ in curves[name]] == [0, 2, 4]
        assert [value for _, value in curves[name]] == pytest.approx([row[name] for row in result.rows], rel=1e-6)
    assert '"algorithm": "fedavg"' in text
    assert '"lr": 0.1' in text
    assert result.problem.fingerprint in text


def test_a_config_tracks_every_run(tmp_path: Path) -> None:
    config = make_config({**CONFIG, "track": {"tensorboard": "tb"}}, folder=tmp_path)
    run(config, tmp_path / "run", Options(say=lambda _: None))
    record = read_run(tmp_path / "run")
    curves, _ = events(tmp_path / "tb" / "fedavg" / "seed-0")
    assert [value for _, value in curves["objective"]] == pytest.approx([row["objective"] for row in record.history])
    assert record.config["track"]["tensorboard"] == str(tmp_path / "tb")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_has_parameters_and_metrics(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    result = simulated(pf.track.MLflow(uri, experiment="visits", name="first"))
    client = mlflow.MlflowClient(tracking_uri=uri)
    [kept] = client.search_runs([client.get_experiment_by_name("visits").experiment_id])
    assert (kept.info.run_name, kept.info.status) == ("first", "FINISHED")
    assert kept.data.params["algorithm"] == "fedavg"
    assert kept.data.params["lr"] == "0.1"
    history = client.get_metric_history(kept.info.run_id, "objective")
    assert [(point.step, point.value) for point in history] == [(row["round"], row["objective"]) for row in result.rows]


def test_weights_and_biases_takes_a_run_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    simulated(pf.track.WandB("visits", mode="offline", folder=tmp_path))
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({}, "config: track names no tracker: give tensorboard, mlflow or wandb"),
        ({"tensorbord": "x"}, "unknown key track.tensorbord; did you mean 'tensorboard'"),
        ({"mlflow": True}, "track.mlflow must be a word, found True"),
        ({"wandb": "p", "mode": "of"}, "track.mode must be one of online, offline, disabled, found 'of'"),
    ],
)
def test_mistakes_are_told(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PolyfedError, match=sentence):
        make_config({**CONFIG, "track": section})


def test_a_tracker_that_is_not_installed_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboardX", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        key = {"tensorboardX": "tensorboard"}.get(name, name)
        sentence = (
            rf"config: track\.{key} needs the package {name}, which is not installed: pip install 'polyfed\[{key}\]'"
        )
        with pytest.raises(PolyfedError, match=sentence):
            make_config({**CONFIG, "track": {key: "x"}})
