"""The stepsizes that methods take from the theory where none is given."""

from __future__ import annotations

import numpy as np
import pytest

import polyfed as pf
from polyfed import theory
from polyfed.algorithms import DCGD, DIANA, FLIX, Scafflix, Scaffnew
from polyfed.compress import RandK
from tests.conftest import few

L2 = 0.05


@pytest.fixture(scope="module")
def logistic() -> pf.Problem:
    draws = np.random.default_rng(3)
    clients = {
        f"site-{i}": {"train": (draws.normal(size=(8 + 3 * i, 4)), np.sign(draws.normal(size=8 + 3 * i)))}
        for i in range(4)
    }
    return pf.Problem(pf.Federation.from_arrays(clients), pf.models.linear(bias=False), "logistic", l2=L2)


@pytest.fixture(scope="module")
def net(logistic) -> pf.Problem:
    return pf.Problem(logistic.federation, pf.models.mlp([3]), "logistic", l2=L2)


def smoothness_of_batches(a: np.ndarray, batch: int) -> float:
    """Written out: (1 - 1/b) mean L_j + 2 max L_j / b, with L_j = |a_j|^2 / 4 + l2."""
    L = np.square(a).sum(axis=1) / 4 + L2
    return (1 - 1 / batch) * L.mean() + 2 * L.max() / batch


@pytest.mark.parametrize("cls", [Scaffnew, Scafflix])
@pytest.mark.parametrize(
    ("batch", "cut", "least"),
    [(3, "replace", [3] * 4), (3, None, [2] * 4), (7, None, [1, 4, 7, 3]), (7, "even", [4, 5, 7, 5])],
)
def test_with_batches_the_stepsize_is_one_over_a_of_the_shortest(logistic, cls, batch, cut, least) -> None:
    """Clients of 8, 11, 14 and 17 rows; without replacement, the last batch of a pass has those that are left."""
    rows = [logistic.federation.train.of(i)[0] for i in range(4)]
    expected = [1 / smoothness_of_batches(a, b) for a, b in zip(rows, least, strict=True)]
    np.testing.assert_allclose(cls(batch=batch, **({cut: True} if cut else {})).resolve(logistic).lr, expected)


@pytest.mark.full
def test_batches_of_one_row_at_the_end_of_a_pass_do_not_diverge() -> None:
    """21 rows in batches of 20: every second batch is a single row. The gap stays below where it started."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(5, 21, 4)) * np.where(np.arange(21) % 7, 0.3, 6.0)[None, :, None]
    clients = [(rows, rows @ draws.normal(size=4) + draws.normal(size=21)) for rows in x]
    fed = pf.Federation.from_arrays(clients, test=0, validation=0)
    problem = pf.Problem(fed, pf.models.linear(bias=False), "squared", l2=L2)
    problem.solve(1.0)
    gaps = [
        pf.simulate(problem, Scaffnew(batch=20, p=0.1), rounds=60, dtype="float64", seed=seed).history["gap"]
        for seed in range(2)
    ]
    assert all(gap.iloc[10:].max() < gap.iloc[0] for gap in gaps)


def test_without_strong_convexity_clients_communicate_all_the_same(logistic) -> None:
    """Theory's p is 0 there; the least by default is 0.001."""
    flat = pf.Problem(logistic.federation, pf.models.linear(bias=False), "logistic", l2=1e-12)
    assert Scaffnew().resolve(flat).p == 1e-3
    usual = Scaffnew().resolve(logistic).p
    assert usual is not None
    assert usual > 1e-3


@pytest.mark.parametrize("alpha", few([1.0, 0.3]))
def test_an_accuracy_makes_the_stepsizes_small_enough_for_the_noise(logistic, alpha) -> None:
    """C_i written out: twice the variance of an example's gradient at the solution's personal model, over the batch."""
    epsilon, batch = 1e-3, 2
    found = np.asarray(Scafflix(alpha=alpha, batch=batch, replace=True, accuracy=epsilon).resolve(logistic).lr)
    solution = logistic.solve(alpha)
    for i in range(4):
        a, b = logistic.federation.train.of(i)
        own = solution.params["w"] if alpha == 1 else solution.local_models.params["w"][i]
        x = alpha * solution.params["w"] + (1 - alpha) * own
        gradients = -(b / (1 + np.exp(b * (a @ x))))[:, None] * a
        C = 2 * np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)) / batch
        assert found[i] == pytest.approx(min(1 / smoothness_of_batches(a, batch), epsilon * L2 / (2 * C)), rel=1e-6)


def test_a_stepsize_above_one_over_a_is_named(logistic) -> None:
    with pytest.warns(UserWarning, match="Theorem 1"):
        Scafflix(alpha=0.5, batch=1, lr=1 / smoothness_of_batches(logistic.federation.train.of(0)[0], 2)).resolve(
            logistic
        )


@pytest.mark.parametrize(("method", "theorem"), [(DCGD, theory.dcgd_stepsize), (DIANA, theory.diana_stepsize)])
def test_a_net_with_known_smoothness_takes_the_nonconvex_theory(net, method, theorem) -> None:
    L = np.array([1.0, 2.0, 3.0, 4.0])
    found = method(alpha=0.5, compressor=RandK(4), smoothness=list(L), plm_epochs=1).resolve(net)
    omega = RandK(4).omega(19)
    assert found.lr == pytest.approx(theorem(L, 0.5, omega, regime="nonconvex"))
    assert found.lr != pytest.approx(theorem(L, 0.5, omega))
    assert FLIX(alpha=0.5, smoothness=2.0, plm_epochs=1).resolve(net).lr == pytest.approx(1 / (0.25 * 2.0))


@pytest.mark.parametrize("method", [cls(alpha=0.5, plm_epochs=1) for cls in (DCGD, DIANA, FLIX)])
def test_a_net_without_it_is_refused(net, method) -> None:
    with pytest.raises(pf.PolyfedError, match=r"lr must be given.*smoothness"):
        method.resolve(net)


@pytest.mark.parametrize(
    ("smoothness", "message"), [([1.0, 2.0], "2 values"), (0.0, "smoothness"), (-1.0, "smoothness")]
)
def test_a_smoothness_that_cannot_be_is_refused(net, smoothness, message) -> None:
    with pytest.raises(pf.PolyfedError, match=message):
        DCGD(alpha=0.5, smoothness=smoothness, plm_epochs=1).resolve(net)


def test_the_trace_bound_can_be_taken_instead(logistic) -> None:
    bound = logistic.constants.trace_bound
    found, usual = (
        method.resolve(logistic).lr for method in (FLIX(alpha=1.0, smoothness=list(bound)), FLIX(alpha=1.0))
    )
    assert found == pytest.approx(1 / bound.mean())
    assert usual is not None
    assert usual > 1 / bound.mean()


@pytest.mark.full
def test_a_reference_belongs_to_its_local_models_precision(logistic) -> None:
    """A run whose x_i* are computed less precisely is not measured against the solution of others."""
    problem = pf.Problem(logistic.federation, logistic.model, "logistic", l2=L2)
    problem.solve(0.5)
    rough = FLIX(alpha=0.5, plm_tolerance=1e-3)
    assert "gap" not in pf.simulate(problem, rough, rounds=1, dtype="float64").rows[-1]
    problem.solve(0.5, plm_tolerance=1e-3)
    assert "gap" in pf.simulate(problem, rough, rounds=1, dtype="float64").rows[-1]
