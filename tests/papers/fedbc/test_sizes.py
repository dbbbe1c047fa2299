"""FedBC's Fig. 5, 6 and 13: sizes and weights, and claims that can fail."""

from __future__ import annotations

import numpy as np

from polyfed.papers.fedbc import image_weights, sizes
from polyfed.papers.fedbc.image_weights import task_of
from polyfed.papers.shared.experiment import silent


def test_sizes_must_be_those_of_table_5() -> None:
    def verdicts(largest: int) -> list[str]:
        rows = [
            {"source": "mnist", "exponent": 1.1, "device": place, "rows": size}
            for place, size in enumerate((largest, 3000, 1222))
        ]
        return [claim.verdict for claim in sizes.judge_fig5(rows)]

    assert verdicts(7480) == ["holds"]
    assert verdicts(7000) == ["does not hold"]


def test_table_5_follows_the_geometric_law_to_a_few_percent() -> None:
    """The largest over the smallest device is the exponent to the power of 19."""
    for rows in sizes.TABLE_5.values():
        for exponent, (least, most) in zip(sizes.EXPONENTS, rows, strict=True):
            assert abs(np.log(most / least) / np.log(exponent) - 19) < 0.5


def test_synthetic_devices_have_at_least_50_rows_in_every_draw() -> None:
    measured = sizes.fig6.run(True, silent)
    assert len(measured.rows) == 2 * 30
    assert min(row["rows"] for row in measured.rows) >= 50
    assert sizes.fig6.outcome(measured).tables


def test_the_largest_tenth_must_have_more_than_half_of_the_rows() -> None:
    def verdict(largest: int) -> str:
        rows = [
            {"devices": 30, "seed": seed, "device": place, "rows": largest + seed if place < 3 else 100}
            for seed in range(3)
            for place in range(30)
        ]
        (claim,) = sizes.judge_fig6(rows)
        return claim.verdict

    assert [verdict(largest) for largest in (1000, 500)] == ["holds", "does not hold"]


def test_weights_on_images_must_differ_less_than_data_sizes() -> None:
    def rows(weight: float) -> list[dict]:
        return [
            {"C": C, "method": "FedBC", "seed": seed, "round": r, "smallest_weight": 0.1, "smallest_data": 0.1}
            | {"largest_weight": 0.1 + weight, "largest_data": 0.4}
            | {"gap_weight": weight + 0.001 * seed, "gap_data": 0.3}
            for C in (1, 3)
            for seed in range(3)
            for r in (10, 20)
        ]

    assert [claim.verdict for claim in image_weights.judge(rows(0.2))] == ["holds", "holds"]
    assert [claim.verdict for claim in image_weights.judge(rows(0.5))] == ["does not hold", "does not hold"]
    assert len(image_weights.draw(rows(0.2)).axes) == 2


def test_every_round_is_recorded_with_the_classes_of_table_4() -> None:
    task = task_of(1, quick=False)
    assert task.every == 1
    assert dict(task.data)["classes"] == (4, 3, 2, 2, 2, 2, *[1] * 14)
