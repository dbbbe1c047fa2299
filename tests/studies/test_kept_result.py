"""A result from Python: in a notebook, as a page, as a picture, and as a folder like those of `polyfed run`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.models import MODELS
from polyfed.studies.kept_result import model_section
from polyfed.studies.newcomers.files import read_newcomers
from polyfed.studies.run_directory import read_run
from tests.data.tables.test_preparation import raw

HOSTILE = "<script>alert('west')</script>"


@pytest.fixture(scope="module")
def result() -> pf.Result:
    df = raw()
    df["site"] = df["site"].replace("west", HOSTILE)
    fed = pf.Federation.from_dataframe(df, client="site", target="died", prepare=True)
    method = pf.algorithms.APFL(lr=0.1, local_steps=2)
    return pf.simulate(pf.Problem(fed, pf.models.mlp([4]), l2=0.01), method, rounds=4, eval_every=2, participation=2)


def test_a_saved_result_is_a_run_like_any_other(result: pf.Result, tmp_path: Path) -> None:
    rows, folder = raw().drop(columns="died"), result.save(tmp_path / "run")
    loaded = pf.load(folder)
    for client in ("north", HOSTILE):
        expected = result.predict(client, rows).probability
        np.testing.assert_allclose(loaded.predict(client, rows).probability, expected, atol=1e-6)
    record = read_run(folder)
    assert [row["round"] for row in record.history] == [0, 2, 4]
    assert [row["objective"] for row in record.history] == [row["objective"] for row in result.rows]
    assert [row["client"] for row in record.clients] == list(result.problem.federation.clients)
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config["problem"] | {"hidden": [4], "model": "mlp", "l2": 0.01} == config["problem"]
    assert config["run"] | {"rounds": 4, "eval_every": 2, "participation": 2} == config["run"]
    raw()[:60].drop(columns="site").to_csv(tmp_path / "east.csv", index=False)
    assert len(pf.personalize(folder, read_newcomers(tmp_path / "east.csv", folder)).rows) == 1
    with pytest.raises(PolyfedError, match="there is a run already"):
        result.save(tmp_path / "run")


def test_the_report_and_the_notebook_escape_names(result: pf.Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "page.html").read_text()
    federation: Any = result.problem.federation
    for shown in (page, result._repr_html_(), federation._repr_html_()):
        assert "alert('west')</script>" not in shown
    assert "&lt;script&gt;alert(" in federation._repr_html_()
    assert "personal_test_accuracy" in result._repr_html_()
    assert repr(result).startswith("Result(apfl, 3 clients, 4 rounds, objective 0.")
    assert list(tmp_path.iterdir()) == [tmp_path / "page.html"]


def test_many_clients_are_cut_to_a_few_rows() -> None:
    x = np.arange(2.0)[:, None]
    shown = pf.Federation.from_arrays([(x, [0, 1])] * 1000, classes=2)._repr_html_()
    assert shown.count("<tr>") == 21
    assert "and 980 more" in shown


def test_a_picture_has_the_objective_and_the_metric(result: pf.Result) -> None:
    left, right = (np.asarray(axes.lines[0].get_ydata()).tolist() for axes in result.plot().axes)
    assert left == [row["objective"] for row in result.rows]
    assert right == [row["personal_test_accuracy"] for row in result.rows]
    assert result.plot("loss").axes[1].get_ylabel() == "loss, test rows, mean over clients"
    with pytest.raises(PolyfedError, match="the history has no metric 'lss'; it has accuracy"):
        result.plot("lss")


@pytest.mark.parametrize("name", MODELS)
def test_a_models_section_makes_it_again(name: str) -> None:
    options: dict[str, Any] = {"linear": {"bias": False}, "cnn": {"kernel": [3, 2]}, "lstm": {"layers": 3}}.get(
        name, {}
    )
    family = MODELS[name](**options)
    section = model_section(family)
    assert section.pop("model") == name
    assert MODELS[name](**section) == family


def test_a_model_of_ones_own_is_kept_as_weights_alone(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    fed = pf.Federation.from_arrays([(x, np.arange(20) % 2)] * 2, classes=2)
    own = (lambda key: np.zeros((3, 2)), lambda params, x: x @ params)
    result = pf.simulate(pf.Problem(fed, own), pf.algorithms.FedAvg(lr=0.1), rounds=1)
    result.save(tmp_path / "run")
    assert (tmp_path / "run" / "models" / "global.safetensors").is_file()
    with pytest.raises(PolyfedError, match=r"a model of one's own, whose code a folder does not hold"):
        pf.load(tmp_path / "run")


class Notebook:
    """As much of IPython as the bar uses."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.drawn: list[str] = []
        ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
        shell = type("ZMQInteractiveShell", (), {})()
        ipython.get_ipython = lambda: shell  # pyright: ignore[reportAttributeAccessIssue]
        display.HTML = str  # pyright: ignore[reportAttributeAccessIssue]
        display.display = self.display  # pyright: ignore[reportAttributeAccessIssue]
        patch.setitem(sys.modules, "IPython", ipython)
        patch.setitem(sys.modules, "IPython.display", display)

    def display(self, html: str, display_id: bool) -> Notebook:
        assert display_id
        self.update(html)
        return self

    def update(self, html: str) -> None:
        self.drawn.append(html)


def test_a_notebook_has_a_bar_and_others_when_they_ask(
    result: pf.Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def again(**options: Any) -> None:
        pf.simulate(result.problem, result.algorithm, rounds=4, eval_every=2, participation=2, **options)

    again()
    assert capsys.readouterr().err == ""
    again(progress=True)
    assert "apfl, 3 clients" in capsys.readouterr().err
    notebook = Notebook(monkeypatch)
    again(progress=False)
    assert notebook.drawn == []
    again()
    assert '<progress value="0" max="4">' in notebook.drawn[0]
    assert '<progress value="4" max="4"></progress> 4/4 loss 0.' in notebook.drawn[-1]
