"""The config of `polyfed advise`: what it changes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.studies.advice.advice import advise_with
from polyfed.studies.advice.contenders import ALONE, BUDGET
from polyfed.studies.advice.files import config_of
from polyfed.studies.advice.settings import AdviceSettings, advice_settings, read_advice_config
from tests.studies.advice.test_advice import DIRECTION, federation, site

ALSO = {"label": "SCAFFOLD", "name": "scaffold", "lr": [0.01, 0.03, 0.1], "local_steps": [5, 10]}


def test_a_config_says_what_is_tried(tmp_path: Path) -> None:
    (tmp_path / "advise.toml").write_text(
        """
        [data]
        source = "csv"
        path = "visits.csv"
        [advise]
        minutes = 2
        methods = ["apfl"]
        models = ["mlp"]
        hidden = [8, 8]
        [[advise.also]]
        label = "SCAFFOLD"
        name = "scaffold"
        lr = [0.01, 0.03, 0.1]
        local_steps = [5, 10]
        """
    )
    data, settings = read_advice_config(tmp_path / "advise.toml")
    assert data["path"] == str(tmp_path / "visits.csv")  # as in every config, beside it
    assert [way.name for way in settings.ways] == [ALONE, "apfl", "SCAFFOLD"]
    assert list(settings.kinds) == ["MLP [8, 8]"]
    tried = {(c.algorithm.lr, c.algorithm.local_steps) for c in settings.ways[-1].candidates}  # pyright: ignore[reportAttributeAccessIssue]
    assert tried == {(lr, steps) for lr in (0.01, 0.03, 0.1) for steps in (5, 10)}
    assert len(tried) == BUDGET


def test_a_fine_tuned_method_of_ones_own_can_be_tried() -> None:
    entry = {"name": "fedavg", "lr": [0.1, 0.3], "finetune_lr": [0.01, 0.1, 0.3], "finetune_steps": 5}
    candidates = advice_settings({"also": [entry]}, "x").ways[-1].candidates
    tuned = [(c.finetune.steps, c.finetune.lr) for c in candidates if c.finetune is not None]
    assert tuned == [(5, 0.01), (5, 0.1), (5, 0.3)] * 2


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"minuts": 3}, "unknown key advise.minuts; did you mean 'minutes'"),
        ({"methods": "apfl"}, "advise.methods must be a list, found 'apfl'"),
        ({"methods": ["apl"]}, "unknown method 'apl'; did you mean 'apfl'"),
        ({"hidden": [0]}, r"hidden must be a list of whole numbers above 0, found \[0\]"),
        ({"splits": True}, "splits must be a whole number, at least 3, found True"),
        ({"l2": -1}, "l2 must be a number, at least 0"),
        ({"also": [{**ALSO, "lr": [0.1]}]}, r"advise.also\[0\] has 2 candidates, expected 6"),
        ({"also": [{**ALSO, "lrr": 1}]}, r"unknown key advise.also\[0\].lrr for scaffold; did you mean 'lr'"),
        ({"also": [{**ALSO, "label": "apfl"}]}, "two ways of training are named 'apfl'"),
        ({"also": ALSO}, r"advise.also must be a list of tables, \[\[advise.also\]\]"),
    ],
)
def test_a_mistake_in_it_is_named(section: dict[str, object], words: str) -> None:
    with pytest.raises(pf.PolyfedError, match=rf"^x: .*{words}"):
        advice_settings(section, "x")


@pytest.mark.full
def test_the_advice_and_its_config_follow_from_it(tmp_path: Path) -> None:
    fed = federation({f"s{k}": site(60, DIRECTION, k) for k in range(3)})
    settings = AdviceSettings(
        minutes=30, splits=3, rounds=3, l2=0.01, methods=(), models=("linear",),
        also=advice_settings({"also": [ALSO]}, "x").also,
    )  # fmt: skip
    advice = advise_with(settings, fed, folder=tmp_path)
    assert {row["method"] for row in advice.table} == {ALONE, "SCAFFOLD", "constant"}
    config = config_of(advice, {"source": "csv"})
    assert config["problem"]["l2"] == 0.01
    best = min(zip(advice_losses(tmp_path), (0.01, 0.03, 0.1, 0.2, 0.4, 0.8), strict=True))[1]
    assert config["compare"][0].get("lr", 0.1) == best  # sites that stay alone train with what was best alone
    other = AdviceSettings(**{**vars(settings), "rounds": 4})
    with pytest.raises(pf.PolyfedError, match="other rows, another seed or other settings"):
        advise_with(other, fed, folder=tmp_path, resume=True)
    longer = AdviceSettings(**{**vars(settings), "minutes": 60.0})
    again = advise_with(longer, fed, folder=tmp_path, resume=True)
    assert [vars(told) for told in again.sites] == [vars(told) for told in advice.sites]


def advice_losses(folder: Path) -> np.ndarray:
    """Of the candidates of going alone, from the kept part."""
    import json

    return np.array(json.loads((folder / "trials" / "00.json").read_text())["by_candidate"])
