"""A model card says which models these are, on which data, how good they are, and who gains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import polyfed as pf


def _run(method: pf.algorithms.Algorithm, problem: pf.Problem) -> pf.Result:
    return pf.simulate(problem, method, rounds=4, eval_every=4)


@pytest.fixture(scope="module")
def problem() -> pf.Problem:
    return pf.Problem(pf.data.load("synthetic", clients=4, sizes=60), pf.models.linear(), l2=0.01)


def test_a_card_has_the_method_the_digest_the_figures_and_each_clients_verdict(
    problem: pf.Problem, tmp_path: Path
) -> None:
    together = _run(pf.algorithms.APFL(lr=0.1, local_steps=2), problem)
    alone = _run(pf.algorithms.Local(lr=0.1, local_steps=2), problem)
    folder = together.save_pretrained(tmp_path / "card", alone)
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: polyfed\n")
    assert "| method | `apfl` |" in card
    assert "| `lr` | `0.1` |" in card
    assert f"digest `{problem.fingerprint}`" in card
    means = together.aggregate("test").query("model == 'personal'").set_index("metric")["mean"]
    assert f"| personal | accuracy | {means['accuracy']:.4f} |" in card
    judged = pf.gains(together, alone)
    rows = re.findall(r"^\| (client-\d+) \| \d+ \| ([+-]\d\.\d{4}) \|.*\| ([a-z ]+) \|$", card, re.M)
    assert rows == [(row["client"], f"{row['gain']:+.4f}", row["verdict"]) for row in judged.to_dict("records")]
    assert pf.load(folder).predict("client-000", problem.federation.test.x[:3]).shape[0] == 3


def test_without_a_run_alone_a_card_claims_no_gain(problem: pf.Problem, tmp_path: Path) -> None:
    card = (_run(pf.algorithms.FedAvg(lr=0.1), problem).save_pretrained(tmp_path / "c") / "README.md").read_text()
    assert "Not judged" in card
    assert "gains" not in card.partition("## Who gains")[2]


def test_a_run_alone_on_other_rows_is_refused_before_anything_is_written(problem: pf.Problem, tmp_path: Path) -> None:
    other = pf.Problem(pf.data.load("synthetic", clients=4, sizes=60, seed=1), pf.models.linear(), l2=0.01)
    with pytest.raises(pf.PolyfedError, match="different rows"):
        _run(pf.algorithms.FedAvg(lr=0.1), problem).save_pretrained(
            tmp_path / "c", _run(pf.algorithms.Local(lr=0.1), other)
        )
    assert list(tmp_path.iterdir()) == []
