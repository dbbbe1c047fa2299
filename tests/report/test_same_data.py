"""A report puts runs together only where they belong together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from polyfed.core.errors import PolyfedError
from polyfed.report.methods import group
from polyfed.studies.run_directory import RunRecord
from tests.report.samples import make_run


def placed(folder: str, label: str = "fedavg", seed: int = 0, **sections: dict[str, object]) -> RunRecord:
    """A run in this folder; `sections` change its config."""
    run = make_run(label, clients=["a", "b", "c"], seed=seed)
    config = {name: {**table, **sections.get(name, {})} for name, table in run.config.items()}
    return dataclasses.replace(run, path=Path(folder), config=config)


def test_a_folder_that_is_given_twice_is_refused() -> None:
    with pytest.raises(PolyfedError, match=r"^runs/../one: given twice; name each run once$"):
        group([placed("one"), placed("two", seed=1), placed("runs/../one")])


def test_a_copy_of_a_run_is_refused() -> None:
    with pytest.raises(PolyfedError, match=r"^one and copy hold the same run; name it once$"):
        group([placed("one"), placed("copy")])


def test_runs_on_other_data_are_refused_with_the_folders_and_the_key() -> None:
    runs = [placed("one", data={"path": "a.csv"}), placed("two", data={"path": "b.csv"})]
    with pytest.raises(PolyfedError, match=r"^data.path is 'a.csv' in one and 'b.csv' in two; "):
        group(runs)
    with pytest.raises(PolyfedError, match=r"data.path is 'a.csv' in one and not set in two"):
        group([runs[0], placed("two", "apfl")])


def test_a_file_that_changed_in_between_is_told_by_its_rows() -> None:
    other = placed("two", seed=1)
    rows = other.clients[1]["rows"]
    assert isinstance(rows, float)
    other.clients[1]["rows"] = rows + 1
    with pytest.raises(PolyfedError, match=rf"^client 'b' has {rows:g} rows in one and {rows + 1:g} in two"):
        group([placed("one"), other])


def test_runs_of_one_label_need_the_same_method_and_methods_may_differ() -> None:
    with pytest.raises(PolyfedError, match=r"^problem.model is 'mlp' in one and 'linear' in two"):
        group([placed("one"), placed("two", problem={"model": "linear"})])
    with pytest.raises(PolyfedError, match=r"^algorithm.lr is 0.1 in one and 0.5 in two; .*labels of their own"):
        group([placed("one"), placed("two", seed=1, algorithm={"lr": 0.5})])
    methods = group([placed("one"), placed("two", "apfl", problem={"model": "linear"})])
    assert [method.label for method in methods] == ["fedavg", "apfl"]


def test_other_seeds_and_splits_of_one_comparison_are_one_method() -> None:
    runs = [placed(f"seed-{i}", seed=i, data={"seed": i}, run={"splits": 4, "seed": i}) for i in range(3)]
    assert [len(method.runs) for method in group(runs)] == [3]
