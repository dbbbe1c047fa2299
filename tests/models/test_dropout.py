"""Dropout: only in training steps, the same mask for the same (seed, round, client, step)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
from polyfed.core import randomness
from polyfed.models import MODELS, Architecture
from polyfed.problem import objective
from polyfed.problem.objective import Batch, Batching, Examples, Objective
from tests.models.test_conv import images
from tests.models.test_recurrent import texts


def small(name: str) -> tuple[pf.Federation, Architecture]:
    cases: dict[str, tuple[pf.Federation, Architecture]] = {
        "mlp": (images((5, 5)), pf.models.mlp([6, 5], dropout=0.5)),
        "cnn": (images((9, 9)), pf.models.cnn([3], hidden=[6], dropout=[0.25, 0.5])),
        "lstm": (texts(), pf.models.lstm(embedding=3, hidden=5, dropout=0.5)),
    }
    return cases[name]


def test_coins_are_independent_of_each_other_and_of_the_key() -> None:
    keys = [jax.random.key(i) for i in range(2)]
    first, second = (np.asarray(randomness.coins(key, (400, 500), 0.25)) for key in keys)
    tolerance = 4 * np.sqrt(0.25 * 0.75 / first.size)
    assert abs(first.mean() - 0.25) < tolerance
    for a, b in [(first, second), (first[1:], first[:-1]), (first[:, 1:], first[:, :-1])]:
        assert abs((a & b).mean() - 0.0625) < 4 * np.sqrt(0.0625 / a.size)


def test_a_share_is_left_out_and_the_mean_stays() -> None:
    from polyfed.models.dense import dropout

    x = jnp.ones((300, 400))
    found = np.asarray(dropout(x, 0.25, jax.random.key(1), 0))
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.75)}
    assert found.mean() == pytest.approx(1, abs=0.01)
    assert dropout(x, 0.25, None, 0) is x


@pytest.mark.full
@pytest.mark.parametrize("name", ["mlp", "lstm"])
def test_masks_do_not_depend_on_chunks_or_devices(name: str) -> None:
    federation, model = small(name)
    problem = pf.Problem(federation, model)
    method = pf.algorithms.FedAvg(local_steps=3, batch=4, lr=0.1)
    runs = [
        pf.simulate(problem, method, rounds=2, seed=seed, devices=devices, chunk=chunk, eval_every=2, dtype="float64")
        for devices, chunk, seed in [(1, 3, 0), (1, 1, 0), (2, 1, 0), (1, 3, 1)]
    ]
    vectors = [np.concatenate([np.ravel(a) for a in jax.tree.leaves(run.global_params)]) for run in runs]
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-12)
    np.testing.assert_allclose(vectors[2], vectors[0], atol=1e-12)
    assert np.abs(vectors[3] - vectors[0]).max() > 1e-3


@pytest.mark.parametrize("size", [4, "full"])
def test_a_step_differs_from_the_next_and_repeats_with_its_key(size) -> None:
    """A model that hands out its mask: what train_apply draws is a function of the client's key and the step."""
    federation = images((3, 3), rows=8)
    draws = []

    def train_apply(params, x, key):
        draws.append(x.shape[0])
        return jnp.tile(params + jax.random.normal(key, (1, 3)), (x.shape[0], 1))

    model = (lambda key: jnp.zeros(3), lambda params, x: jnp.tile(params, (x.shape[0], 1)), train_apply)
    problem = pf.Problem(federation, model)
    x, y = map(jnp.asarray, federation.train.of(0))
    count = jnp.int32(len(y))
    zero = jnp.int32(0)
    f = Objective(problem.task, Examples(x, y), zero, count, len(y), zero, zero, jax.random.key(0))

    def walk(key):
        def step(carry, batch):
            index, seen = carry
            return index + 1, seen.at[index].set(f.grad(jnp.zeros(3), batch))

        return f.train(step, (0, jnp.zeros((4, 3))), key, Batching(size, 4))[0][1]

    first, again, other = walk(jax.random.key(5)), walk(jax.random.key(5)), walk(jax.random.key(6))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(np.asarray(first)[:, 0])) == 4
    assert not np.allclose(first, other)
    assert draws


def test_a_whole_pass_in_blocks_draws_anew_for_each_block(monkeypatch) -> None:
    monkeypatch.setattr(objective, "BLOCK", 4)
    federation = images((3, 3), rows=8)
    seen = []

    def train_apply(params, x, key):
        return jnp.tile(params, (x.shape[0], 1)) + jax.random.normal(key, (1, 3))

    problem = pf.Problem(federation, (lambda key: jnp.zeros(3), lambda p, x: jnp.tile(p, (len(x), 1)), train_apply))
    x, y = map(jnp.asarray, federation.train.of(0))
    zero, count = jnp.int32(0), jnp.int32(len(y))
    f = Objective(problem.task, Examples(x, y), zero, count, len(y), zero, zero, jax.random.key(0))
    key = jax.random.key(3)
    for block in range(2):
        batch = Batch(jnp.arange(4 * block, 4 * block + 4), jnp.ones(4), jax.random.fold_in(key, block))
        seen.append(f.value(jnp.zeros(3), batch))
    assert float(f.value(jnp.zeros(3), Batch(None, None, key))) == pytest.approx(float(np.mean(seen)), abs=1e-6)


@pytest.mark.full
def test_values_gradients_and_metrics_are_of_the_whole_model() -> None:
    federation, dropped = small("mlp")
    plain = pf.Problem(federation, pf.models.mlp([6, 5]))
    problem = pf.Problem(federation, dropped)
    params, name = plain.init(seed=2), federation.clients[0]
    assert problem.value(params, name) == plain.value(params, name)
    jax.tree.map(np.testing.assert_array_equal, problem.grad(params, name), plain.grad(params, name))


def test_without_dropout_nothing_is_drawn() -> None:
    for name, make in MODELS.items():
        if name not in ("femnist_cnn", "lstm"):
            federation = images((32, 32, 3), rows=2)
            assert make().build(federation.feature_shape, 3).train_apply is None
    assert pf.models.femnist_cnn().build((28, 28), 62).train_apply is not None
    assert pf.models.femnist_cnn(dropout=0).build((28, 28), 62).train_apply is None
    assert pf.models.lstm(dropout=0.5, layers=1).build((5,), 4).train_apply is None


def test_two_rates_of_dropout_are_two_models() -> None:
    federation = images((5, 5))
    digests = {pf.Problem(federation, pf.models.mlp([6], dropout=p)).model_fingerprint for p in (0.0, 0.25, 0.5)}
    assert len(digests) == 3


def test_an_own_model_that_is_no_pair_or_triple_is_refused(federation) -> None:
    with pytest.raises(pf.PolyfedError, match=r"\(init, apply\) or \(init, apply, train_apply\)"):
        pf.Problem(federation, (lambda key: 0,))
