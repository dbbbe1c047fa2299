"""The embedded sources against their formulas, and the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data.sources.synthetic import client_law


def test_synthetic_labels_are_the_argmax_of_each_clients_own_model():
    federation = data.load("synthetic", clients=5, sizes=200, seed=3)
    for i in range(5):
        law = client_law(0.5, 0.5, 60, 10, 3, i)
        for part in ("train", "validation", "test"):
            x, y = federation.split(part).of(i)
            logits = x @ law.weights.T + law.bias
            soft = np.exp(logits - logits.max(axis=1, keepdims=True))
            np.testing.assert_array_equal(y, (soft / soft.sum(axis=1, keepdims=True)).argmax(axis=1))
    assert federation.classes == 10
    assert federation.train.sizes.tolist() == [140] * 5


def test_synthetic_inputs_have_variance_j_to_the_minus_1_2_around_the_clients_centre():
    n = 40_000
    federation = data.synthetic(clients=1, sizes=n, validation=0, test=0, seed=1)
    expected = np.arange(1, 61) ** -1.2
    # The relative standard error of a variance is sqrt(2 / n) = 0.7%; five of them.
    np.testing.assert_allclose(federation.train.x.var(axis=0), expected, rtol=5 * np.sqrt(2 / n))
    centre = client_law(0.5, 0.5, 60, 10, 1, 0).center
    assert (np.abs(federation.train.x.mean(axis=0) - centre) < 5 * np.sqrt(expected / n)).all()


def test_alpha_and_beta_are_standard_deviations_and_the_inner_spread_is_one():
    laws = [client_law(0.3, 2.0, 60, 10, 0, i) for i in range(4000)]
    error = 5 / np.sqrt(2 * len(laws))
    assert np.std([law.model_mean for law in laws]) == pytest.approx(0.3, rel=error)
    assert np.std([law.input_mean for law in laws]) == pytest.approx(2.0, rel=error)
    for inner in ("weights", "bias", "center"):
        mean = [law.input_mean if inner == "center" else law.model_mean for law in laws]
        spread = np.concatenate([(getattr(law, inner) - m).ravel() for law, m in zip(laws, mean, strict=True)])
        assert spread.std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * len(spread)))
        assert abs(spread.mean()) < 5 / np.sqrt(len(spread))


def test_log_normal_sizes_follow_the_published_law():
    options = {"clients": 3000, "features": 1, "classes": 2, "validation": 0, "test": 0, "on_demand": True}
    sizes = data.load("synthetic", **options).train.sizes
    assert sizes.min() >= 50
    # The floor of LogNormal(4, 2) has the median floor(e^4) = 54; its sample median scatters by about 2.5 rows.
    assert np.median(sizes) == pytest.approx(50 + 54, abs=10)
    # P(LogNormal(4, 2) > e^6) = P(Z > 1) = 0.159
    assert np.mean(sizes - 50 > np.exp(6)) == pytest.approx(0.1587, abs=0.03)
    capped = data.load("synthetic", **options, max_size=100).train.sizes
    np.testing.assert_array_equal(capped, np.minimum(sizes, 100))


def test_a_client_of_synthetic_does_not_depend_on_how_many_there_are():
    few, many = data.synthetic(clients=3), data.synthetic(clients=12)
    np.testing.assert_array_equal(few.test.of(2)[0], many.test.of(2)[0])
    assert few.clients == many.clients[:3]
    assert not np.array_equal(few.train.x[:5], data.synthetic(clients=3, seed=1).train.x[:5])


def test_iid_synthetic_clients_share_one_law():
    federation = data.synthetic(clients=6, sizes=2000, iid=True, validation=0, test=0)
    means = np.stack([federation.train.of(i)[0].mean(axis=0) for i in range(6)])
    assert np.abs(means - means[0]).max() < 0.2
    assert np.ptp(federation.columns["model_mean"]) == 0
    for seed in range(4):  # a centre drawn coordinate by coordinate would leave some of these draws one class
        labels = data.synthetic(clients=2, sizes=500, iid=True, seed=seed).train.y.ravel().astype(int)
        assert np.bincount(labels).max() < 0.6 * len(labels)
    alike, apart = federation.summary().label_skew, data.synthetic(sizes=500).summary().label_skew
    assert alike is not None
    assert apart is not None
    assert alike < 0.05 < 0.5 < apart


def quadratic(federation, i):
    """(Hessian, optimum, value at the optimum) of half the mean squared residual."""
    a, b = federation.train.of(i)
    hessian = a.T @ a / len(a)
    optimum = np.linalg.lstsq(a, b, rcond=None)[0]
    return hessian, optimum, 0.5 * np.mean((a @ optimum - b) ** 2)


@pytest.mark.parametrize("rows", [None, 9])
def test_quadratics_have_the_given_spectra_and_optima(rows):
    spectra = [[1.0, 2.0, 5.0], [0.1, 0.2, 3.0]]
    optima = [[1.0, -2.0, 0.5], [3.0, 0.0, 1.0]]
    federation = data.load("quadratics", clients=2, dim=3, spectra=spectra, optima=optima, rows=rows)
    assert federation.train.sizes.tolist() == [rows or 3] * 2
    for i in range(2):
        hessian, optimum, value = quadratic(federation, i)
        np.testing.assert_allclose(np.linalg.eigvalsh(hessian), np.sort(spectra[i]), rtol=1e-12)
        np.testing.assert_allclose(optimum, optima[i], atol=1e-12)
        assert value < 1e-28
        assert np.abs(hessian - np.diag(np.diag(hessian))).max() > 0.01
    assert federation.columns["L"].tolist() == [5.0, 3.0]
    assert len(federation.test.x) == len(federation.validation.x) == 0


def test_quadratics_attain_mu_and_l_and_spread_by_zeta():
    federation = data.quadratics(clients=4, dim=6, mu=[0.1, 0.2, 0.3, 0.4], L=10.0, zeta=2.5, center=1.0)
    points = []
    for i in range(4):
        hessian, optimum, _ = quadratic(federation, i)
        values = np.linalg.eigvalsh(hessian)
        assert values[[0, -1]] == pytest.approx([0.1 * (i + 1), 10.0], rel=1e-10)
        points.append(optimum)
    points = np.array(points)
    np.testing.assert_allclose(points.mean(axis=0), np.ones(6), atol=1e-10)
    assert np.mean(((points - 1) ** 2).sum(axis=1)) == pytest.approx(2.5**2, rel=1e-10)


def test_unrotated_quadratics_are_diagonal():
    federation = data.quadratics(clients=1, dim=2, spectra=[1.0, 4.0], rotate=False, optima=[[1.0, 1.0]])
    np.testing.assert_allclose(quadratic(federation, 0)[0], np.diag([1.0, 4.0]), atol=1e-15)


def test_sines_are_the_groups_functions_on_their_own_points():
    federation = data.load("sines", seed=2)
    assert federation.train.sizes.tolist() == [50] * 200
    assert federation.test.sizes.tolist() == [2000] * 200
    facts = federation.columns
    assert np.bincount(facts["group"]).tolist() == [30, 170]
    assert len(set(facts["amplitude"])) == len(set(facts["phase"])) == 2
    assert (facts["amplitude"] >= 0.1).all()
    assert (facts["amplitude"] <= 0.5).all()
    for i in (0, 29, 30, 199):
        for part in ("train", "test"):
            x, y = federation.split(part).of(i)
            np.testing.assert_allclose(y, facts["amplitude"][i] * np.sin(x[:, 0] + facts["phase"][i]), atol=1e-15)
    x = federation.test.x
    assert x.shape == (400_000, 1)
    assert (x.min(), x.max()) == pytest.approx((-5, 5), abs=1e-3)
    assert len(np.unique(x)) == x.size
    assert federation.classes is None


def test_digits_are_scaled_and_shared_out_without_loss():
    federation = data.load("digits")
    everything = np.concatenate([federation.split(p).x for p in ("train", "validation", "test")])
    theirs, digits = load_digits(return_X_y=True)
    labels = np.concatenate([federation.split(p).y for p in ("train", "validation", "test")])
    rows = np.column_stack([everything * 16, labels])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, np.column_stack([theirs, digits])))
    assert everything.shape == (1797, 64)
    assert everything.dtype == np.float32
    assert (everything.min(), everything.max()) == (0, 1)
    assert len(federation) == 20
    assert federation.classes == 10
    two = data.load("digits", partition="classes_per_client", k=2, clients=10)
    assert two.summary().classes_per_client == 2
    geometric = data.load("digits", partition="power_law", exponent=1.2, classes=3, clients=5, validation=0, test=0)
    assert (np.diff(geometric.train.sizes) < 0).all()


@pytest.mark.parametrize("name", ["synthetic", "quadratics", "sines", "digits"])
def test_a_source_describes_itself_well_enough_to_be_made_again(name):
    made = data.load(name, clients=4, seed=7) if name != "sines" else data.load(name, groups=[1, 2], seed=7)
    options = json.loads(json.dumps(made.source))
    again = data.load(options.pop("name"), **options)
    for part in ("train", "test"):
        np.testing.assert_array_equal(made.split(part).x, again.split(part).x)
        np.testing.assert_array_equal(made.split(part).y, again.split(part).y)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("synthetik", {}, "unknown value 'synthetik'; did you mean 'synthetic'"),
        ("synthetic", {"alpa": 1}, "'synthetic' has no option 'alpa'; did you mean 'alpha'"),
        ("csv", {"path": "a.csv", "client": "c"}, "'csv' needs the option 'target'"),
        ("csv", {"path": 3, "client": "c", "target": "y"}, "path must be a path, found 3"),
        ("federation", {"path": "none.safetensors"}, "none.safetensors: no such file"),
        ("synthetic", {"alpha": "big"}, "alpha must be a finite number, found 'big'"),
        ("synthetic", {"alpha": -1}, "alpha must be at least 0, found -1"),
        ("synthetic", {"clients": 2.5}, "clients must be a whole number of at least 1, found 2.5"),
        ("synthetic", {"clients": True}, "clients must be a whole number"),
        ("synthetic", {"sizes": "powerlaw"}, "sizes must be 'lognormal'"),
        ("synthetic", {"sizes": [50, 60]}, "sizes has 2 entries, expected one for each of 30"),
        ("synthetic", {"sizes": 0}, "sizes must be a whole number of at least 1"),
        ("synthetic", {"iid": 1}, "iid must be true or false"),
        ("quadratics", {"mu": 2.0, "L": 1.0}, "0 <= mu <= L"),
        ("quadratics", {"spectra": [1.0]}, r"spectra has shape \(1,\)"),
        ("quadratics", {"spectra": [-1.0] * 5}, "spectra must not be negative"),
        ("quadratics", {"optima": "zero"}, "optima must hold numbers"),
        ("quadratics", {"rows": 3}, "rows must be a whole number of at least 5"),
        ("sines", {"groups": 200}, "groups must be a list"),
        ("sines", {"groups": [10, 0]}, r"groups\[1\] must be a whole number"),
        ("sines", {"amplitude": [0.5, 0.1]}, "amplitude must be a pair"),
        ("digits", {"partition": "dirichle"}, "partition has the unknown value 'dirichle'"),
        ("digits", {"concentraton": 1}, "no option 'concentraton'; did you mean 'concentration'"),
        ("digits", {"clents": 1}, "no option 'clents'; did you mean 'clients'"),
    ],
)
def test_wrong_names_and_options_are_refused(name, options, message):
    with pytest.raises(PolyfedError, match=message):
        data.load(name, **options)


def test_every_source_has_a_description_and_importing_them_is_light():
    assert list(data.sources()) == [
        "synthetic", "quadratics", "sines", "airlines", "digits", "mnist", "mnist_by_writer", "fashion_mnist", "emnist",
        "femnist", "cifar10", "shakespeare", "shakespeare_leaf", "debtags", "libsvm", "csv", "parquet", "folder", "npz",
        "npy", "huggingface", "federation",
    ]  # fmt: skip
    assert all(text and "\n" not in text for text, _ in data.sources().values())
    modules = ("pandas", "sklearn", "pyarrow", "matplotlib")
    heavy = f"import polyfed.data, sys; print([m for m in {modules} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for file in Path(data.__file__).parent.rglob("*.py"):
        assert "import jax" not in file.read_text()
