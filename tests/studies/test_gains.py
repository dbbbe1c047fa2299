"""What each client gains: paired on the same test rows, over splits or on one, and written down once."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.problem.metrics import METRICS
from polyfed.report.gains import ClientGain, for_certain
from polyfed.report.methods import group
from polyfed.studies import experiment
from polyfed.studies.config import make_config
from polyfed.studies.evaluation import gain_columns
from polyfed.studies.gains import GainsInTheMaking, evidence
from polyfed.studies.run_directory import RunRecord, find_runs, read_run
from polyfed.studies.same_rows import rarest_class
from polyfed.studies.verdicts import Interval, over_splits, row_evidence, row_kind

QUIET = experiment.Options(say=lambda text: None)
SPLITS = 4


def hospitals(folder: Path, turned: tuple[str, ...] = ()) -> Path:
    """Six hospitals with 40 patients each, of one law in eight measurements; the opposite one where `turned`."""
    random = np.random.default_rng(5)
    rule = random.normal(size=8) * 1.5
    with (folder / "visits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hospital", "died", *(f"m{k}" for k in range(8))])
        for name in ("north", "south", "east", "west", "hill", "lake"):
            x = random.normal(size=(40, 8))
            sign = -1 if name in turned else 1
            died = (random.random(40) < 1 / (1 + np.exp(-sign * (x @ rule)))).astype(int)
            writer.writerows([name, label, *row] for label, row in zip(died, x, strict=True))
    return folder / "visits.csv"


def sections(path: Path, **run: Any) -> dict[str, Any]:
    return {
        "data": {"source": "csv", "path": str(path), "client": "hospital", "target": "died", "test": 0.3},
        "problem": {"l2": 0.01},
        "algorithm": {"lr": 0.3, "local_steps": 5, "batch": "full"},
        "run": {"rounds": 15, "eval_every": 15, "finetune_steps": 0, "save_models": False, **run},
        "compare": [{"name": "local", "label": "Alone"}, {"name": "fedavg"}, {"name": "apfl"}],
    }


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[RunRecord]]:
    """Some splits of hospitals of which one has the opposite law, by method."""
    folder = tmp_path_factory.mktemp("gains")
    config = make_config(sections(hospitals(folder, ("lake",)), splits=SPLITS))
    records = experiment.compare(config, folder / "out", QUIET)
    return {label: [record for record in records if record.label == label] for label in ("Alone", "fedavg", "apfl")}


def column(records: list[RunRecord], name: str) -> np.ndarray:
    """(runs, clients)"""
    return np.array([[row[name] for row in record.clients] for record in records], float)


def test_a_gain_is_the_mean_over_splits_of_differences_on_the_same_test_rows(turned) -> None:
    runs = turned["fedavg"]
    gains = column(runs, "personal_test_auc") - column(runs, "alone_test_auc")
    np.testing.assert_allclose(column(runs[:1], "gain")[0], gains.mean(axis=0), atol=1e-12)
    for record in runs:  # one program scores all splits; the engine measured each by itself
        losses = (column([record], f"personal_test_{name}") for name in ("log_loss", "loss"))
        np.testing.assert_allclose(*losses, rtol=1e-5)
    plain = [over_splits(gains[:, client], 12, 28) for client in range(6)]
    for client, interval in enumerate(plain):  # the rows' own errors make it wider or narrower, not another
        low, high = (column(runs[:1], name)[0, client] for name in ("gain_low", "gain_high"))
        assert low < interval.estimate < high
        assert 0.3 < (high - low) / (interval.high - interval.low) < 3


def test_who_has_the_opposite_law_loses_and_the_words_follow_from_the_intervals(turned) -> None:
    rows = {row["client"]: row for row in turned["fedavg"][0].clients}
    assert rows["lake"]["verdict"] == "loses"
    assert rows["lake"]["gain_p"] < 0.05
    for row in rows.values():
        expected = "gains" if row["gain_low"] > 0 else "loses" if row["gain_high"] < 0 else "cannot tell"
        assert row["verdict"] == expected
        assert row["rows"] == 40
        assert 0 < row["positives"] < 1
    summary = turned["fedavg"][0].summary["gains"]["alone"]
    words = [row["verdict_among_all"] for row in rows.values()]
    assert [words.count(word) for word in ("gains", "loses", "cannot tell")] == [
        summary[name] for name in ("helped", "harmed", "undecided")
    ]
    ordered = sorted(rows.values(), key=lambda row: row["gain_p"])
    called = np.maximum.accumulate([row["gain_p"] * (6 - place) for place, row in enumerate(ordered)]) < 0.05  # Holm
    assert [row["verdict_among_all"] != "cannot tell" for row in ordered] == called.tolist()
    assert summary["helped"] + summary["harmed"] + summary["undecided"] == summary["clients"] == 6
    assert summary["basis"] == "splits"
    means = column(turned["fedavg"][:1], "gain").mean()
    assert summary["mean"]["low"] < summary["mean"]["estimate"] == pytest.approx(means, abs=1e-12)


def test_all_runs_of_a_method_tell_the_same_gains_and_all_methods_have_the_same_splits(turned) -> None:
    for runs in turned.values():
        for name in ("gain", "gain_low", "gain_high", "gain_p"):
            values = column(runs, name) if runs[0].clients[0][name] != "" else np.zeros((SPLITS, 1))
            assert (values == values[0]).all()
        assert [run.summary["split"] for run in runs] == list(range(SPLITS))
        assert [run.summary["seed"] for run in runs] == list(range(SPLITS))
    constant = [column(runs, "constant_test_log_loss") for runs in turned.values()]
    assert (constant[0] == constant[1]).all()
    assert (constant[0] == constant[2]).all()
    assert len({tuple(row) for row in constant[0].tolist()}) > 1  # the splits differ


def test_nobody_is_compared_with_itself(turned) -> None:
    alone, fedavg, apfl = (turned[label][0].summary["gains"] for label in ("Alone", "fedavg", "apfl"))
    assert alone["alone"] is None
    assert fedavg["global"] is None
    assert apfl["alone"] is not None
    assert apfl["global"] is not None
    assert all(gains["constant"] is not None for gains in (alone, fedavg, apfl))


def test_the_shown_metric_follows_the_question_and_can_be_chosen(turned, tmp_path) -> None:
    metric = turned["apfl"][0].summary["metric"]
    assert metric == {"name": "auc", "label": "AUC", "higher_is_better": True, "is_share": False}
    config = make_config(sections(hospitals(tmp_path), metric="log_loss") | {"compare": [{"name": "fedavg"}]})
    [record] = experiment.run(config, tmp_path / "out", QUIET)
    gains = column([record], "alone_test_log_loss") - column([record], "personal_test_log_loss")
    np.testing.assert_allclose(column([record], "gain"), gains, atol=1e-12)  # less is better, a gain is positive
    assert record.summary["gains"]["alone"]["basis"] == "rows"


def test_a_run_with_splits_keeps_the_others_inside_its_folder(tmp_path) -> None:
    config = make_config(sections(hospitals(tmp_path), splits=3, alone=False) | {"compare": [{"name": "fedavg"}]})
    records = experiment.run(config, tmp_path / "out", QUIET)
    assert [record.path for record in records] == find_runs(tmp_path / "out")
    assert [record.path.name for record in records] == ["out", "split-1", "split-2"]
    with pytest.raises(PolyfedError, match=r"run\.splits = 2 .* take 1, or at least 3"):
        make_config(sections(hospitals(tmp_path), splits=2))


@pytest.mark.full
def test_of_a_sample_all_splits_measure_the_same_clients(tmp_path) -> None:
    given: dict[str, Any] = sections(hospitals(tmp_path), splits=3, eval_clients=3)
    given["compare"] = [{"name": "fedavg"}]
    given["problem"] |= {"class_weight": "balanced"}  # models that weigh classes are judged as all others
    records = experiment.run(make_config(given), tmp_path / "out", QUIET)
    names = [[row["client"] for row in record.clients] for record in records]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == records[0].summary["gains"]["alone"]["mean_clients"] == 3
    assert read_run(tmp_path / "out").clients == records[0].clients


@pytest.mark.full
def test_seeds_on_one_split_do_not_make_rows_more(tmp_path) -> None:
    """Four seeds of one split share their rows: the interval stays about as wide as that of one."""
    widths = {}
    for seeds in ([0], [0, 1, 2, 3]):
        given = sections(hospitals(tmp_path), seeds=seeds, metric="accuracy")
        given["algorithm"] |= {"batch": 5, "local_steps": 2}
        given["compare"] = [{"name": "fedavg"}]
        records = experiment.compare(make_config(given), tmp_path / f"out-{len(seeds)}", QUIET)
        basis = records[0].summary["gains"]["alone"]["basis"]
        assert basis == ("rows" if len(seeds) == 1 else "seeds")
        widths[basis] = (column(records[:1], "gain_high") - column(records[:1], "gain_low")).mean()
    assert 0.6 < widths["seeds"] / widths["rows"] < 1.5


def test_a_client_with_one_class_has_no_auc_and_is_named(tmp_path) -> None:
    path = hospitals(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.replace("hill,1", "hill,0") for line in lines) + "\n")
    config = make_config(sections(path) | {"compare": [{"name": "fedavg"}]})
    [record] = experiment.run(config, tmp_path / "out", QUIET)
    assert record.summary["undefined"] == {"auc": ["hill"]}
    hill = next(row for row in record.clients if row["client"] == "hill")
    assert (hill["verdict"], hill["gain"], hill["gain_low"]) == ("cannot tell", "", "")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["gains"]["alone"]["undecided"] >= 1


def test_two_positive_rows_tell_nothing_of_auc_however_many_splits_test_them() -> None:
    """Every split ranks its only positive row first, which going alone ranks last."""
    labels = np.array([1, *[0] * 11])
    ahead, behind = 1.0 * labels, -1.0 * labels + np.linspace(0, 0.1, 12)
    runs = [(ahead + split / 100, behind, labels) for split in range(10)]
    told = {}
    for rarest in (2, 3):
        making = GainsInTheMaking(METRICS["auc"], 1, "splits", np.array([48.0]))
        making.add(0, runs, None, rarest)
        told[rarest] = making.intervals[0]
    assert told[2] is not None
    assert told[3] is not None
    assert (told[2].known, told[3].known) == (False, True)
    assert told[2].estimate == 1
    both = GainsInTheMaking(METRICS["auc"], 2, "splits", np.array([48.0, 48.0]))
    both.add(0, runs, None, 2)
    both.add(1, [(behind, behind, labels)] * 10, None, 20)
    gains = both.finished()
    assert (gains.mean_clients, gains.mean.estimate) == (1, 0.0)  # nor does the mean rest on it
    fed = pf.Federation.from_arrays(
        {"a": (np.eye(60), np.repeat([1, 0], [2, 58])), "b": (np.eye(60), np.arange(60) % 2)}
    )
    assert [rarest_class([fed.redrawn(split) for split in range(2)], client) for client in (0, 1)] == [2, 30]


def test_splits_want_a_seed_each_and_rows_in_memory(tmp_path) -> None:

    with pytest.raises(PolyfedError, match=r"run.splits = 3, but run.seeds has 2"):
        make_config(sections(tmp_path, splits=3, seeds=[0, 1]))
    with pytest.raises(PolyfedError, match=r"run.splits must be at least 1, found 0"):
        make_config(sections(tmp_path, splits=0))
    with pytest.raises(PolyfedError, match=r"run.metric: unknown metric 'acc'"):
        experiment.run(
            make_config(sections(hospitals(tmp_path), metric="acc") | {"compare": [{"name": "fedavg"}]}),
            tmp_path / "out",
            QUIET,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["accuracy", "auc", "log_loss", "brier"])
@pytest.mark.parametrize("rows", [2, 9, 40])
def test_short_cuts_give_the_evidence_of_leaving_out_row_after_row(name, rows) -> None:
    random = np.random.default_rng(rows)
    labels = (np.arange(rows) % 3 == 0).astype(int)
    ours, theirs = random.random(rows).round(1), random.random(rows).round(1)
    metric = METRICS[name]
    quick = evidence(metric, ours, theirs, labels)
    kind, higher = row_kind(name), metric.higher_is_better
    whole = row_evidence(metric, ours, theirs, labels, higher_is_better=higher, kind=kind)
    np.testing.assert_allclose(dataclasses.astuple(quick)[:6], dataclasses.astuple(whole)[:6], atol=1e-12)
    assert quick.kind == whole.kind
    if quick.values is not None and whole.values is not None:
        np.testing.assert_allclose(quick.values, whole.values, atol=1e-12)


def test_tables_count_the_clients_that_the_summary_counts_after_holms_correction(turned) -> None:
    """One definition: a client whose own interval excludes zero may be chance among many."""
    for runs in turned.values():
        stored = runs[0].summary["gains"]["alone"]
        [method] = group(runs)
        if stored is None:
            assert method.gains is None
            continue
        assert method.gains is not None
        counted = [method.gains.count(verdict) for verdict in ("gains", "loses", "cannot tell")]
        assert counted == [stored["helped"], stored["harmed"], stored["undecided"]]


def test_a_client_that_gains_by_itself_may_be_chance_among_twenty() -> None:
    gaining = ClientGain(Interval(0.054, 0.004, 0.104, freedom=12), 0.034, "gains", 0.05)
    others = [ClientGain(Interval(0.01, -0.05, 0.07, freedom=12), 0.7, "cannot tell", 0.06)] * 19
    assert [client.verdict for client in for_certain([gaining])] == ["gains"]
    assert {client.verdict for client in for_certain([gaining, *others])} == {"cannot tell"}


def test_no_interval_is_shown_beyond_what_the_metric_allows() -> None:
    """Four rows say next to nothing of a share; the p-value and what they could have shown stay those of the rows."""
    making = GainsInTheMaking(METRICS["accuracy"], 1, "rows", np.array([9]))
    making.add(0, [(np.array([0.9, 0.9, 0.1, 0.1]), np.array([0.1, 0.9, 0.9, 0.1]), np.array([1, 1, 1, 0]))])
    found = making.finished()
    (own,) = found.clients
    assert own.low < -1 < 1 < own.high
    columns = gain_columns(found, 1, "")
    assert (columns["gain_low"], columns["gain_high"]) == ([-1.0], [1.0])
    assert (columns["gain_p"], columns["detectable"]) == ([own.p_value], [(own.high - own.low) / 2])
    assert found.as_dict()["mean"] == {"estimate": own.estimate, "low": -1.0, "high": 1.0}
    assert METRICS["auc"].largest == METRICS["recall_at_5"].largest == 1
    assert METRICS["rmse"].largest == METRICS["log_loss"].largest == np.inf
