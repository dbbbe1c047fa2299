"""The picture of a federation: what it counts, that it is drawn, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.patches import Rectangle

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.picture import MOST_CLIENTS, figure, label_counts


def federation(clients: int = 3, classes: int = 4, rows: int = 20) -> Federation:
    random = np.random.default_rng(0)
    pairs = [(random.normal(size=(rows + i, 2)), random.integers(0, classes, rows + i)) for i in range(clients)]
    return Federation.from_arrays(pairs, classes=classes)


def test_labels_are_counted_over_all_splits_by_hand():
    x = np.ones((4, 2))
    pair = Federation.from_arrays(
        {
            "a": {"train": (x, [0, 0, 2, 0]), "test": (x[:1], [2])},
            "b": {"train": (x, [1, 1, 1, 1]), "test": (x[:2], [1, 0])},
        },
        classes=4,
    )
    counts, names = label_counts(pair)
    assert counts is not None
    np.testing.assert_array_equal(counts, [[3, 0, 2, 0], [1, 5, 0, 0]])
    assert names == ("0", "1", "2", "3")
    counts, names = label_counts(Federation.from_arrays([(x, [-1, 1, 1, 1])], validation=0, test=0))
    assert counts is not None
    assert (counts.tolist(), names) == ([[1, 3]], ("-1", "+1"))
    assert label_counts(Federation.from_arrays([(x, [0.5, 1.0, 1.5, 2.0])]))[0] is None


def test_many_labels_that_nobody_has_are_left_out():
    x = np.ones((6, 2))
    counts, names = label_counts(
        Federation.from_arrays([(x, [0, 50, 50, 0, 61, 61])], classes=62, validation=0, test=0)
    )
    assert counts is not None
    assert (counts.tolist(), names) == ([[2, 2, 2]], ("0", "50", "61"))


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_picture_is_written_and_is_the_same_every_time(tmp_path, ending, begins):
    for name in ("one", "two"):
        assert data.picture(federation(), tmp_path / f"{name}.{ending}") == tmp_path / f"{name}.{ending}"
    one, two = ((tmp_path / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
    assert one.startswith(begins)
    assert one == two
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"one.{ending}", f"two.{ending}"]


def test_few_clients_are_circles_with_areas_in_proportion_to_their_rows():
    x = np.ones((100, 1))
    y = [0] * 80 + [1] * 20
    drawn = figure(Federation.from_arrays({"a": (x, y), "b": (x[:40], [1] * 40)}, validation=0, test=0))
    (points,) = drawn.axes[2].collections
    assert isinstance(points, PathCollection)
    assert np.asarray(points.get_offsets()).tolist() == [[0, 0], [0, 1], [1, 1]]  # the largest client first
    sizes = points.get_sizes()
    np.testing.assert_allclose(sizes / sizes[0], [1, 0.25, 0.5])
    assert [tick.get_text() for tick in drawn.axes[2].get_xticklabels()] == ["a", "b"]


def test_many_clients_are_a_map_of_shares_of_a_sample():
    many = federation(clients=150, rows=30)
    drawn = figure(many)
    (image,) = drawn.axes[2].images
    drawn_shares = image.get_array()
    assert drawn_shares is not None
    shares = np.ma.filled(drawn_shares, 0)
    assert shares.shape == (4, MOST_CLIENTS)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    counts, _ = label_counts(many)
    assert counts is not None
    largest, smallest = counts[149] / counts[149].sum(), counts[0] / counts[0].sum()
    np.testing.assert_allclose(shares[:, 0], largest)
    np.testing.assert_allclose(shares[:, -1], smallest)
    assert "of these 150 clients" in drawn.axes[2].get_xlabel()


def test_regression_shows_sizes_alone(tmp_path):
    drawn = figure(data.sines(groups=[2, 3], test_points=5))
    assert len(drawn.axes) == 1
    heights = [patch.get_height() for patch in drawn.axes[0].patches if isinstance(patch, Rectangle)]
    assert heights == [50] * 5 + [5] * 5


@pytest.mark.parametrize(
    ("name", "message"),
    [("p.jpg", "p.jpg: a picture ends in .svg, .png or .pdf"), ("no/p.svg", "no: no such folder")],
)
def test_wrong_places_are_refused(tmp_path, name, message):
    with pytest.raises(PolyfedError, match=message):
        data.picture(federation(), tmp_path / name)
