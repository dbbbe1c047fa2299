"""Sites that a common model fails are named by validation rows, and the others train without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import polyfed as pf
from polyfed.deploy.from_advice import project_from_advice
from polyfed.deploy.settings import read_toml
from polyfed.models import linear
from polyfed.problem.metrics import metric_named
from polyfed.problem.problem import Problem
from polyfed.report.advice_page import write_advice_page
from polyfed.report.interval_line import signed
from polyfed.studies.advice.advice import advise_with
from polyfed.studies.advice.apart import sites_apart, trial_without
from polyfed.studies.advice.contenders import contenders
from polyfed.studies.advice.estimate import choose
from polyfed.studies.advice.files import write_advice
from polyfed.studies.advice.settings import AdviceSettings
from polyfed.studies.advice.trials import run_trial
from polyfed.studies.config import read_config

DIRECTION = np.array([2.0, -1.5, 1.0, 0.0, 0.5])
SIGNS = {"a": 1, "b": 1, "odd": -1, "c": 1, "d": 1}


def site(rows: int, direction: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, len(direction)))
    return x, (random.random(rows) < 1 / (1 + np.exp(-x @ direction))).astype(int)


def problems(signs: list[int], draws: int = 2) -> list[Problem]:
    sites = {f"s{place}": site(200, sign * DIRECTION, place) for place, sign in enumerate(signs)}
    fed = pf.Federation.from_arrays(sites, validation=0.25, test=0.25, classes=2)
    return [Problem(fed.redrawn(draw), linear(), "softmax", l2=1e-3) for draw in range(draws)]


def trained(name: str, drawn: list[Problem]):
    way = next(way for way in contenders() if way.name == name)
    trial = run_trial(way, "linear", drawn, metric_named("log_loss", drawn[0]), 15, lambda _: None)
    assert trial is not None
    return way, trial


def test_the_one_that_is_opposite_is_left_out_and_the_others_gain_by_that() -> None:
    drawn = problems([1, 1, 1, 1, 1, -1])
    proper = metric_named("log_loss", drawn[0])
    alone, (way, joint) = trained("alone", drawn)[1], trained("global", drawn)
    apart = sites_apart([alone, joint], drawn, proper)
    assert apart is not None
    assert apart.sites == (5,)
    assert apart.draws == (True, True)
    without = trial_without(apart, joint, way, drawn, proper, 15, lambda _: None)
    assert without is not None
    assert without.apart == [[5], [5]]
    rows = drawn[0].federation.test
    others = slice(0, rows.offsets[5])
    assert proper.by_row is not None
    before, after = (
        np.mean(proper.by_row(t.of("personal", "test")[0][others], rows.y[others])) for t in (joint, without)
    )
    assert after < before - 0.05
    np.testing.assert_array_equal(  # the site itself keeps what the common model said of it
        without.of("personal", "test")[0][rows.offsets[5] :], joint.of("personal", "test")[0][rows.offsets[5] :]
    )
    assert isinstance(drawn[0].federation, pf.Federation)
    choice = choose([alone, joint, without], 0, drawn[0].federation, proper)
    assert choice.trial is without
    assert choice.deploys[5] == "alone"
    assert "alone" not in choice.deploys[:5]


@pytest.mark.full
def test_the_weights_are_those_of_a_federation_without_it() -> None:
    drawn = problems([1, 1, 1, -1], draws=1)
    proper = metric_named("log_loss", drawn[0])
    alone, (way, joint) = trained("alone", drawn)[1], trained("global", drawn)
    apart = sites_apart([alone, joint], drawn, proper)
    assert apart is not None
    without = trial_without(apart, joint, way, drawn, proper, 15, lambda _: None)
    fewer = Problem(drawn[0].federation.select([0, 1, 2]), linear(), "softmax", l2=1e-3)
    _, expected = trained("global", [fewer])
    assert without is not None
    np.testing.assert_array_equal(without.of("personal", "test")[0][:150], expected.of("personal", "test")[0])


@pytest.mark.parametrize("signs", [pytest.param([1, 1, 1, 1], marks=pytest.mark.full), [1, 1, -1, -1]])
def test_nobody_is_left_out_of_sites_that_are_alike_or_of_two_halves(signs) -> None:
    drawn = problems(signs)
    proper = metric_named("log_loss", drawn[0])
    assert sites_apart([trained("alone", drawn)[1], trained("global", drawn)[1]], drawn, proper) is None


@pytest.mark.full
def test_files_train_the_others_together_and_the_site_apart_alone(tmp_path: Path) -> None:
    sites = {name: site(150, sign * DIRECTION, place) for place, (name, sign) in enumerate(SIGNS.items())}
    columns = [f"x{i}" for i in range(len(DIRECTION))]
    frames = [pd.DataFrame(x, columns=columns).assign(site=name, y=y) for name, (x, y) in sites.items()]
    pd.concat(frames).to_csv(tmp_path / "t.csv", index=False)
    data = {"source": "csv", "path": str(tmp_path / "t.csv"), "client": "site", "target": "y", "validation": 0.25}
    settings = AdviceSettings(minutes=30, splits=3, rounds=10, methods=("global",), models=("linear",))
    advice = advise_with(settings, pf.Federation.from_csv(**{k: v for k, v in data.items() if k != "source"}))
    assert advice.apart == ["odd"]
    write_advice(advice, tmp_path / "out", data)
    together, alone = (read_config(tmp_path / "out" / name) for name in ("config.toml", "alone.toml"))
    assert together.federation.clients == ("a", "b", "c", "d")
    assert alone.federation.clients == ("odd",)
    assert [method.algorithm.name for method in alone.methods] == ["local"]
    write_advice_page(advice, tmp_path / "page.html", title="t")
    [own] = [site for site in advice.sites if site.client == "odd"]
    assert (
        f"<td>alone<br><small>together {signed(own.together_gain)}</small></td>" in (tmp_path / "page.html").read_text()
    )
    commands = advice.next_commands(tmp_path / "out")
    assert f"polyfed compare {tmp_path / 'out' / 'alone.toml'}" in commands
    pytest.importorskip("flwr")
    project_from_advice(tmp_path / "out", tmp_path / "study", "127.0.0.1", 8443, with_rows=True)
    odd = tmp_path / "study" / "odd"
    assert sorted(path.name for path in odd.iterdir()) == ["alone.toml", "rows"]  # no key: it is no part of it
    own = read_config(odd / "alone.toml")
    assert own.federation.clients == ("odd",)
    assert [method.algorithm for method in own.methods] == [method.algorithm for method in alone.methods]
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(own.federation.split(part).x, alone.federation.split(part).x)
        np.testing.assert_array_equal(own.federation.split(part).y, alone.federation.split(part).y)
    assert read_toml(tmp_path / "study" / "server" / "server.toml")["federation"]["sites"] == ["a", "b", "c", "d"]
