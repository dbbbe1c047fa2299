"""PLSGD, Table 1: claims on made-up distances."""

from __future__ import annotations

from polyfed.papers.plsgd import table1


def test_rows_of_the_table_and_the_window_are_judged_by_seeds() -> None:
    def verdicts(ours: float, alone: float, own: float) -> list[str]:
        rows = []
        for method, distance, predicted in (
            ("pure local training", alone, {"predicted": 1.0, "in_window": True}),
            (table1.OURS, ours, {"predicted": 1.0, "in_window": True}),
            (table1.OWN_STEPSIZE, own, {"predicted": 2.0}),
        ):
            facts = {"federation": "one", "method": method, "R": 5}
            rows.append(facts | predicted)
            values = (distance, distance * 1.01, distance * 0.985)
            rows += [{**facts, "seed": seed, "distance": value} for seed, value in enumerate(values)]
        return [claim.verdict for claim in table1.judge(rows)]

    assert verdicts(ours=1.0, alone=2.0, own=1.5) == ["holds"] * 4
    assert verdicts(ours=20.0, alone=2.0, own=2.5) == ["holds", *["does not hold"] * 3]
    assert verdicts(ours=2.0, alone=2.0, own=2.0)[2:] == ["undecided"] * 2
