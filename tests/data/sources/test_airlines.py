"""The embedded table of flights: read as it is, and as predictable as it should be."""

from __future__ import annotations

import csv
import io
import lzma

import numpy as np

import polyfed.data as data
from polyfed.data.sources.airlines import FILE


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(lzma.decompress(FILE.read_bytes()).decode())))


def test_every_airline_has_its_flights_and_every_column_is_understood():
    flights, federation = rows(), data.airlines()
    sizes = {name: sum(flight["airline"] == name for flight in flights) for name in federation.clients}
    total = np.sum([federation.split(part).sizes for part in ("train", "validation", "test")], axis=0)
    assert dict(zip(federation.clients, total.tolist(), strict=True)) == sizes
    assert (len(sizes), sum(sizes.values()), min(sizes.values())) == (16, 13_305, 29)
    late = np.concatenate([federation.split(part).y for part in ("train", "validation", "test")])
    assert late.sum() == sum(flight["late"] == "yes" for flight in flights)
    assert federation.label_names == ("no", "yes")
    assert federation.preparation is not None
    kinds = {column.name: column.kind for column in federation.preparation.columns}
    words = dict.fromkeys(("origin", "dest", "manufacturer"), "category")
    assert kinds == {
        **dict.fromkeys([name for name in flights[0] if name not in ("airline", "late")], "number"),
        **dict.fromkeys(("date", "departs"), "date"),
        **words,
    }
    assert "path" not in federation.source


def test_a_logistic_regression_of_scikit_learn_predicts_it_as_measured():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    federation = data.airlines(seed=1)
    model = LogisticRegression(C=0.03, max_iter=1000).fit(federation.train.x, federation.train.y)
    scores = model.decision_function(federation.test.x)
    assert 0.68 < roc_auc_score(federation.test.y, scores) < 0.75  # 0.711 over ten splits
