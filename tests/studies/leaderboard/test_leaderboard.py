"""The leaderboard: ranks and bits by hand, one small cell for real, a table that is resumed, and a page from rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.algorithms import REGISTRY
from polyfed.studies.leaderboard import CONTENDERS, FEDERATIONS, Arena, Board, Cell, contenders, page, run_cell
from polyfed.studies.leaderboard.cell import rounds_of, spec_of
from polyfed.studies.leaderboard.contenders import BUDGET, Contender
from polyfed.studies.leaderboard.page import bits_to_target, gain, standing, write_page
from polyfed.studies.leaderboard.ranks import ranks

SMALL = Arena(
    "Small", "synthetic", {"clients": 4, "sizes": 40}, "linear", "four clients", rounds=6, seeds=2, local_steps=3
)


def cell(method: str, seed: int, value: float | None, curve: str = "2 1 0.5", bits: float = 1e6) -> Cell:
    spec = spec_of(FEDERATIONS["synthetic-1"], CONTENDERS[method]) if method in CONTENDERS else "s"
    return Cell("synthetic-1", method, seed, value, value, value, 2, bits, 1.0, curve, "lr 0.1", spec)


def test_every_method_of_the_registry_stands_on_the_board_with_as_many_candidates() -> None:
    assert {contender.algorithm for contender in contenders().values()} == set(REGISTRY)
    for label, contender in contenders().items():
        candidates = contender.candidates(label, FEDERATIONS["airlines"])
        assert len({repr(each) for each in candidates}) == BUDGET
        rates = [getattr(each, contender.rate) for each in candidates]
        assert (min(rates), max(rates)) == FEDERATIONS["airlines"].rates
        steps = {getattr(each, "local_steps", 10) for each in candidates}
        assert steps == {10}


def test_ranks_by_hand() -> None:
    noise = np.array([0.0, 0.1, -0.1, 0.05, -0.05])
    found = ranks(
        {"best": 3 + noise, "tied": 2.99 + noise[::-1], "behind": 1 + noise, "lost": np.array([9.0, np.nan, 9, 9, 9])}
    )
    assert {name: (rank.place, rank.low, rank.high) for name, rank in found.items()} == {
        "best": (1, 1, 2),
        "tied": (2, 1, 2),
        "behind": (3, 3, 3),
        "lost": (4, 4, 4),
    }


def test_the_range_of_a_rank_holds_the_true_one_as_often_as_it_says() -> None:
    """Six methods whose true means lie apart by less than the noise of a seed."""
    rng, covered, whole = np.random.default_rng(0), 0, 600
    for _ in range(whole):
        values = {str(k): -0.3 * k + rng.normal(size=8) for k in range(6)}
        covered += all(rank.low <= int(name) + 1 <= rank.high for name, rank in ranks(values).items())
    assert covered / whole > 0.9  # each alone has 95%


def test_bits_until_a_method_is_as_good_as_going_alone() -> None:
    alone = [cell("local", seed, 0.5, "3 2 1", 0.0) for seed in (1, 2)]
    fast = [cell("fast", 1, 0.6, "3 1 0.5 0.4 0.3"), cell("fast", 2, 0.6, "3 2 2 1 0.9")]
    half = [cell("half", 1, 0.6, "3 2 1.5"), cell("half", 2, 0.6, "3 0.9 0.8")]
    cells = {"local": alone, "fast": fast, "half": half}
    assert bits_to_target(cells, "fast") == (pytest.approx((0.25 + 0.75) / 2 * 1e6), 2)
    assert bits_to_target(cells, "half") == (pytest.approx(0.5e6), 1)
    assert bits_to_target(cells, "local") == (0.0, 2)
    found = gain({"local": alone, "fast": fast}, "fast")
    assert found is not None
    assert found.estimate == pytest.approx(0.1)


@pytest.mark.full
@pytest.mark.parametrize(("fixed", "costs"), [({}, 2.0), ({"compressor": {"name": "rand_k", "k": 61}}, 1.1)])
def test_rounds_are_those_that_the_budget_of_bits_pays_for(fixed: dict, costs: float) -> None:
    problem = SMALL.problem(0)
    method = CONTENDERS["dcgd"].candidates("dcgd", SMALL)[0]
    method = dataclasses.replace(method, **{"compressor": "identity", **fixed})  # pyright: ignore[reportArgumentType]
    assert rounds_of(SMALL, problem, [method]) == int(6 * 2 / costs)
    assert rounds_of(SMALL, problem, [pf.algorithms.Local()]) == 6


def test_a_cell_is_tuned_on_one_draw_and_judged_on_the_others() -> None:
    cells = run_cell("small", SMALL, "fedavg", CONTENDERS["fedavg"])
    assert [each.seed for each in cells] == [1, 2]
    rate = float(cells[0].chosen.removeprefix("lr ").removesuffix("*"))
    for each in cells:
        problem = SMALL.problem(each.seed)
        tried = [x for x in CONTENDERS["fedavg"].candidates("fedavg", SMALL) if f"{x.lr:.3g}" == f"{rate:.3g}"]  # pyright: ignore[reportAttributeAccessIssue]
        result = pf.simulate(problem, tried[0], rounds=each.rounds, seed=each.seed, eval_every=1)
        accuracy = result.evaluate("test")["personal_accuracy"]
        assert each.personal == pytest.approx(accuracy.mean(), abs=1e-5)
        assert each.worst == pytest.approx(accuracy.min(), abs=1e-5)
        assert each.bits == result.simulation.bits_up + result.simulation.bits_down
        losses = [float(point) for point in each.curve.split()]
        assert losses == pytest.approx(result.history["personal_validation_loss"].tolist(), rel=1e-3)
    first = SMALL.problem(0)
    losses = [
        float(pf.simulate(first, x, rounds=cells[0].rounds, eval_every=99).history["personal_validation_loss"].iloc[-1])
        for x in CONTENDERS["fedavg"].candidates("fedavg", SMALL)
    ]
    chosen = CONTENDERS["fedavg"].candidates("fedavg", SMALL)[int(np.argmin(losses))]
    assert f"{chosen.lr:.3g}" == f"{rate:.3g}"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_cell_that_is_there_is_not_run_again_until_its_settings_change(tmp_path: Path) -> None:
    board = Board.read(tmp_path / "board.csv")
    spec = spec_of(FEDERATIONS["airlines"], CONTENDERS["fedavg"])
    board.put([dataclasses.replace(cell("fedavg", 1, 0.7), federation="airlines", spec=spec)])
    again = Board.read(tmp_path / "board.csv")
    assert again.cells == board.cells
    assert again.has("airlines", "fedavg", spec)
    longer = dataclasses.replace(FEDERATIONS["airlines"], rounds=7)
    assert not again.has("airlines", "fedavg", spec_of(longer, CONTENDERS["fedavg"]))
    assert not again.has("airlines", "apfl", spec)
    again.put([dataclasses.replace(cell("fedavg", 1, None), federation="airlines")])
    assert [each.personal for each in Board.read(tmp_path / "board.csv").cells] == [None]


def test_the_page_says_what_the_rows_say_and_renews_its_part_alone(tmp_path: Path) -> None:
    rows = [("good", 0.9), ("local", 0.7), ("bad", 0.5)]
    jitter = [0.0, 0.001, -0.001]
    board = Board(tmp_path / "b.csv", [cell(m, s, v + jitter[s - 1]) for m, v in rows for s in (1, 2, 3)])
    text = page(board)
    assert "good has the highest mean, ahead of all others for sure" in text
    assert "Surely better than going alone: 1 of 2; surely worse: 1" in text
    assert "Surely worse than going alone on none: good." in text
    assert "| 1 | good | 0.900 | +0.200 (+0.200 to +0.200) | 0.900 |" in text
    assert {name: rank.words for name, rank in standing(board.of("synthetic-1")).items()} == {
        "good": "1",
        "local": "2",
        "bad": "3",
    }
    board.cells[-1] = cell("bad", 3, None)
    assert "diverged in 1" in page(board)
    path = tmp_path / "page.md"
    path.write_text("Before.\n<!-- begin:leaderboard -->\nold\n<!-- end:leaderboard -->\nAfter.\n")
    write_page(board, path)
    assert path.read_text().startswith("Before.\n<!-- begin:leaderboard -->\n## What to use when")
    assert path.read_text().endswith("<!-- end:leaderboard -->\nAfter.\n")
    path.write_text("no markers")
    with pytest.raises(pf.PolyfedError, match="has no part between"):
        write_page(board, path)


def test_a_federation_with_few_methods_says_nothing_of_the_absent_ones(tmp_path: Path) -> None:
    """Third of three is another rank than third of two: means and the words on all are over complete federations."""
    jitter = [0.0, 0.001, -0.001]
    rows = [("synthetic-1", "good", 0.9), ("synthetic-1", "local", 0.7), ("synthetic-1", "bad", 0.5)]
    rows += [("airlines", "local", 0.7), ("airlines", "bad", 0.9)]
    spec = {f: spec_of(FEDERATIONS[f], CONTENDERS["local"]) for f in ("synthetic-1", "airlines")}
    made = [
        dataclasses.replace(cell(m, s, v + jitter[s - 1]), federation=f, spec=spec[f])
        for f, m, v in rows
        for s in (1, 2, 3)
    ]
    text = page(Board(tmp_path / "b.csv", made))
    assert "**On all 1 with every method.** Possibly first on each: good." in text
    assert "| bad | 3.0 (3.0 to 3.0) | 3 | 1 |" in text
    assert "Airlines, 2 methods" in text
    lone = [each for each in made if (each.federation, each.method) != ("synthetic-1", "bad")]
    assert "with every method" not in page(Board(tmp_path / "b.csv", lone))


def test_rows_of_other_settings_are_not_drawn(tmp_path: Path) -> None:
    made = [cell("local", seed, 0.7) for seed in (1, 2)] + [cell("apfl", seed, 0.9) for seed in (1, 2)]
    assert "apfl has the highest mean" in page(Board(tmp_path / "b.csv", made))
    earlier = [dataclasses.replace(each, spec="other") if each.method == "apfl" else each for each in made]
    text = page(Board(tmp_path / "b.csv", earlier))
    assert "local has the highest mean" in text
    assert "| apfl |" not in text
    assert f"not been run here with these settings: {len(CONTENDERS) - 1}." in text
    assert "marks a value at the end of its range: 0 of 1 values." in text


def test_a_file_adds_methods(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '["FedAvg, Adam"]\nname = "fedavg"\nserver_optimizer = "adam"\nspace = {server_lr = [0.01, 0.03, 0.1]}\n'
    )
    added = contenders(["FedAvg, Adam"], file)["FedAvg, Adam"]
    assert added == Contender("fedavg", {"server_optimizer": "adam"}, {"server_lr": [0.01, 0.03, 0.1]})
    assert len(added.candidates("FedAvg, Adam", SMALL)) == BUDGET
    assert next(iter(contenders(None, file))) == "FedAvg, Adam"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fedavg]\nname = 'fedavg'\n", "'fedavg' stands on the leaderboard already"),
        ("[mine]\nlr = 1\n", r"\[mine\] must be a table with the name of an algorithm"),
        ("[mine]\nname = 'fedavgg'\n", "did you mean 'fedavg'"),
        ("mine", "is no TOML file"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(pf.PolyfedError, match=message):
        contenders(None, tmp_path / "mine.toml")


def test_a_broken_table_is_refused_by_row(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    Board(path).put([cell("fedavg", 1, 0.7)])
    path.write_text(path.read_text().replace("0.7", "many"))
    with pytest.raises(pf.PolyfedError, match="row 1, column 'personal': expected a number, found 'many'"):
        Board.read(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(pf.PolyfedError, match="row 1 has not the columns federation, method"):
        Board.read(path)
