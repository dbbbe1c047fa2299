"""A column that gives the answer away is named; one that is only good is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from polyfed.data import Federation
from polyfed.data.cautions import cautions

ROWS = 400


def table(target: object, **columns: Any) -> Federation:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"site": np.tile(["a", "b"], ROWS // 2), "y": target, "age": random.normal(50, 10, ROWS)})
    frame["ward"] = random.choice(["A", "B", "C"], ROWS)
    return Federation.from_dataframe(frame.assign(**columns), client="site", target="y", prepare=True)


def named(fed: Federation) -> list[str]:
    return [c.sentence.split("'")[1] for c in cautions(fed) if c.kind == "leak"]


@pytest.fixture
def died() -> np.ndarray:
    return np.random.default_rng(1).random(ROWS) < 0.2


@pytest.mark.parametrize(
    "leak",
    [
        lambda died: np.where(died, "expired", "home"),
        lambda died: np.where(died, "expired", np.tile(["home", "clinic", "hospice", "kin"], ROWS // 4)),
        lambda died: np.where(died, np.tile(["C1", "C2"], ROWS // 2), np.tile(["K1", "K2"], ROWS // 2)),
        lambda died: np.where(died, 3.0, np.nan),  # missing tells it
        lambda died: np.where(died, np.tile(["2020-01-31", "2021-04-30"], ROWS // 2), ""),
        lambda died: -1.0 * died + np.random.default_rng(2).normal(0, 0.1, ROWS),
        lambda died: np.where(died, 5, np.tile([1, 9], ROWS // 2)),  # in the middle: no order tells it
        lambda died: np.where(np.arange(ROWS) == 7, ~died, died).astype(int),  # all but one row
    ],
)
def test_a_column_that_gives_the_class_away_is_named(died, leak) -> None:
    assert named(table(died, code=leak(died))) == ["code"]


def test_good_columns_are_not_named(died) -> None:
    random = np.random.default_rng(3)
    good = died + random.normal(0, 0.4, ROWS)  # an AUC of about 0.96
    words = np.where(random.random(ROWS) < 0.1, "other", np.where(died, "sick", "well"))
    assert named(table(died, good=good, words=words, noise=random.integers(0, 60, ROWS).astype(str))) == []


def test_three_classes_and_numbers() -> None:
    random = np.random.default_rng(4)
    grade = random.choice(["green", "red", "yellow"], ROWS)
    assert named(table(grade, code=np.select([grade == "green", grade == "red"], [1, 7], 3))) == ["code"]
    cost = np.exp(random.normal(7, 1, ROWS))
    assert named(table(cost, dollars=1.1 * cost, logged=np.log(cost), near=cost * random.uniform(0.5, 1.5, ROWS))) == [
        "dollars",
        "logged",
    ]
    assert named(table(np.repeat([1.5, 2.5, 3.5, 7.25], ROWS // 4), word=np.repeat(list("abcd"), ROWS // 4))) == [
        "word"
    ]


def test_few_rows_of_a_class_say_nothing() -> None:
    rare = np.arange(ROWS) < 4
    assert named(table(rare, code=np.where(rare, 1, 0))) == []
