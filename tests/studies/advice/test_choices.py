"""Choices by validation rows: the federation's, and each site's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import polyfed as pf
from polyfed.models import linear
from polyfed.problem.metrics import metric_named
from polyfed.problem.problem import Problem
from polyfed.studies.advice.choices import Deployed, federation_choice, site_choice, vote
from polyfed.studies.advice.estimate import advised, choose
from polyfed.studies.advice.trials import Trial


def test_the_lowest_validation_loss_is_chosen_and_of_equals_going_alone() -> None:
    assert federation_choice({"alone": 0.3, "fedavg": 0.2}, "alone") == "fedavg"
    assert federation_choice({"fedavg": 0.2, "alone": 0.2}, "alone") == "alone"


def losses(rows: int, better: float, seed: int = 0) -> dict[Deployed, np.ndarray]:
    base = np.random.default_rng(seed).gamma(2.0, 0.2, rows)
    noise = np.random.default_rng(seed + 1).normal(0, 0.1, rows)
    return {"personal": base, "alone": base - better + noise}


def test_a_site_leaves_the_federations_choice_only_where_its_rows_are_certain() -> None:
    assert site_choice("personal", losses(100, 0.2)) == "alone"
    assert site_choice("personal", losses(100, -0.2)) == "personal"
    assert site_choice("personal", losses(7, 0.2)) == "personal"  # too few rows for any test
    assert site_choice("alone", losses(100, -0.2)) == "personal"


@pytest.mark.parametrize("rows", [8, 20, 200])
def test_small_validation_sets_do_not_fool_it(rows: int) -> None:
    """Where both models are equally good, a site changes over in about 5 of 100 draws."""
    changed = sum(site_choice("personal", losses(rows, 0.0, seed)) == "alone" for seed in range(2000))
    assert changed / 2000 < 0.065


def test_two_options_share_the_error() -> None:
    """With a third option that is as good, the share of changes does not double."""
    changed = 0
    for seed in range(2000):
        options = losses(50, 0.0, seed)
        options["global"] = options["personal"] + np.random.default_rng(seed + 9000).normal(0, 0.1, 50)
        changed += site_choice("personal", options) != "personal"
    assert changed / 2000 < 0.065


def test_most_splits_decide_what_a_site_deploys_and_a_tie_goes_to_the_federations_choice() -> None:
    assert vote(["alone", "alone", "personal"], "personal") == "alone"
    assert vote(["alone", "personal"], "personal") == "personal"
    assert vote(["global", "alone"], "personal") == "alone"


def log_losses(chance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return -np.log(np.where(labels == 1, chance, 1 - chance))


def trial(name: str, chances: list[float], labels: np.ndarray) -> Trial:
    """Of three sites on one split: a chance of class 1 for each site's rows, with a little noise."""
    noise = np.random.default_rng(len(name)).normal(0, 0.002, len(labels))
    chance = np.repeat(chances, len(labels) // 3) + noise
    loss = float(np.mean(log_losses(chance, labels)))
    return Trial(name, "linear", [0], [loss], [loss], {"personal validation": chance[None]}, 0.0, 0, 0, 1)


def test_a_site_that_is_unlike_the_others_does_not_keep_them_from_training_together() -> None:
    """Together, two sites are better off and the third is ruined: over all rows going alone has the lower loss."""
    labels = np.tile([0, 1, 1, 1], 30)
    rows = {part: (np.zeros((40, 1)), labels[:40]) for part in ("train", "validation", "test")}
    fed = pf.Federation.from_arrays({f"s{k}": rows for k in range(3)}, classes=2)
    proper = metric_named("log_loss", Problem(fed, linear(), "softmax"))
    alone, joint = trial("alone", [0.5] * 3, labels), trial("global", [0.75, 0.75, 0.01], labels)
    assert alone.loss[0] < joint.loss[0]
    choice = choose([alone, joint], 0, fed, proper)
    assert choice.trial is joint
    assert choice.deploys == ["personal", "personal", "alone"]
    deployed = np.concatenate(
        [joint.scores["personal validation"][0, :80], alone.scores["personal validation"][0, 80:]]
    )
    assert choice.losses["global (linear)"] == pytest.approx(np.mean(log_losses(deployed, labels)))


def test_a_single_site_may_have_the_common_model_where_all_others_stay_alone() -> None:
    labels = np.tile([0, 1, 1, 1], 30)
    fed = pf.Federation.from_arrays(
        {f"s{k}": dict.fromkeys(("train", "validation", "test"), (np.zeros((40, 1)), labels[:40])) for k in range(3)},
        classes=2,
    )
    proper = metric_named("log_loss", Problem(fed, linear(), "softmax"))
    alone, joint = trial("alone", [0.75, 0.75, 0.5], labels), trial("global", [0.5, 0.5, 0.75], labels)
    choice = choose([alone, joint], 0, fed, proper)
    both = {"alone (linear)": 0.1, "global (linear)": 0.2}
    far = dataclasses.replace(choice, deploys=["alone", "alone", "personal"])
    assert advised([alone, joint], [far], both) == (joint, ["alone", "alone", "personal"])
    assert advised([alone, joint], [dataclasses.replace(far, deploys=["alone"] * 3)], both) == (alone, ["alone"] * 3)
    without = dataclasses.replace(joint, apart=[[1]])
    told = advised([alone, without], [far], {"alone (linear)": 0.3, "global (linear, some apart)": 0.2})
    assert told == (without, ["alone", "alone", "personal"])
