"""Where APFL's alpha ends: what is chosen by validation, and claims that can fail."""

from __future__ import annotations

import numpy as np

from polyfed.papers.apfl import starts


def rows(ends: dict[float, float]) -> list[dict]:
    """Learned alphas that end at these, and three fixed ones of which validation prefers another than test does."""
    made = []
    for seed, noise in enumerate((0.0, 0.001, -0.001)):
        about = {"column": "clients differ", "seed": seed, "round": 9}
        for start, share in ends.items():
            figures = {"share": share + noise, "accuracy": 0.5 + share / 10 + noise, "validation_loss": 1.0}
            made += [about | {"kind": kind, "start": start} | figures for kind in (starts.TRAIN, starts.VALIDATION)]
        for start, loss, accuracy in ((0.0, 2.0, 0.99), (0.5, 1.0, 0.8), (1.0, 1.5, 0.7)):
            figures = {"share": start, "accuracy": accuracy + noise, "validation_loss": loss}
            made.append(about | {"kind": starts.HELD, "start": start} | figures)
        made.append(about | {"kind": starts.BOUND, "share": 0.4})
    return made


def test_the_fixed_alpha_is_chosen_by_validation_and_not_by_test() -> None:
    np.testing.assert_allclose(starts.best_fixed(rows({0.1: 0.5}), "clients differ", "start"), 0.5)
    np.testing.assert_allclose(starts.best_fixed(rows({0.1: 0.5}), "clients differ").mean(), 0.8)


def test_an_alpha_that_ends_where_it_starts_refutes_that_starts_do_not_matter() -> None:
    apart = starts.judge(rows({0.01: 0.1, 0.5: 0.9}))
    assert [claim.verdict for claim in apart] == ["does not hold", "holds", "holds"]
    alike = starts.judge(rows({0.01: 0.9, 0.5: 0.9}))
    assert [claim.verdict for claim in alike][:2] == ["holds", "undecided"]
    assert starts._told(rows({0.1: 0.5})).count("|") > 10
