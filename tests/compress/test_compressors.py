"""Compressors: unbiased, within their omega, counted to the bit, under jit and vmap, at any scale."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from polyfed.compress import COMPRESSORS, Compressor, Dithering, Identity, Natural, RandK, TopK, make
from polyfed.core.errors import PolyfedError

DRAWS = 20_000
UNBIASED = [RandK(1), RandK(4), RandK(12), RandK(5, seeded=False), Dithering(1), Dithering(4), Dithering(64), Natural()]
ALL = [*UNBIASED, Identity(), TopK(3)]


def vector(size: int = 12, seed: int = 0) -> np.ndarray:
    """Numbers of very different magnitudes and both signs, with a zero among them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=size) * 10.0 ** rng.uniform(-2, 1, size=size)
    x[size // 2] = 0.0
    return x


@jax.jit
def send(compressor: Compressor, key: jax.Array, x: jax.Array) -> jax.Array:
    """One message. The compressor is an input: its numbers are traced."""
    return compressor(key, x)


def draws(compressor: Compressor, x: jax.Array, seed: int = 0) -> np.ndarray:
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return np.asarray(jax.vmap(send, in_axes=(None, 0, None))(compressor, keys, x))


@pytest.mark.parametrize("compressor", UNBIASED, ids=str)
def test_the_mean_of_many_messages_is_the_vector(compressor: Compressor) -> None:
    """Each coordinate's mean lies within 5 standard errors (12 coordinates, 8 compressors: false alarm below 1e-4)."""
    with jax.enable_x64(True):
        x = vector()
        found = draws(compressor, jnp.asarray(x))
    error = found.std(axis=0) / DRAWS**0.5
    assert (np.abs((found - x).mean(axis=0)) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("compressor", UNBIASED, ids=str)
def test_the_mean_squared_error_is_within_omega(compressor: Compressor) -> None:
    """E|C(x) - x|^2 <= omega |x|^2, up to 5 standard errors, on three vectors."""
    for seed in range(3):
        with jax.enable_x64(True):
            x = vector(seed=seed)
            found = draws(compressor, jnp.asarray(x), seed=seed)
        relative = ((found - x) ** 2).sum(axis=1) / (x**2).sum()
        bound = float(compressor.omega(x.size))
        assert relative.mean() <= bound + 5 * relative.std() / DRAWS**0.5 + 1e-12


@pytest.mark.parametrize("k", [1, 3, 7])
def test_rand_k_attains_its_omega(k: int) -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng(1).normal(size=10)
        found = draws(RandK(k), jnp.asarray(x))
    relative = ((found - x) ** 2).sum(axis=1) / (x**2).sum()
    assert relative.mean() == pytest.approx(10 / k - 1, abs=5 * relative.std() / DRAWS**0.5)


def test_natural_attains_its_omega_at_its_worst_point() -> None:
    """At t = 4/3 the relative variance (2/t - 1)(1 - 1/t) is largest: 1/8."""
    with jax.enable_x64(True):
        found = draws(Natural(), jnp.full(4, 4 / 3))
    relative = ((found - 4 / 3) ** 2) / (4 / 3) ** 2
    assert relative.mean() == pytest.approx(0.125, abs=5 * relative.std() / (4 * DRAWS) ** 0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_a_message_keeps_shape_and_precision_and_a_zero_vector_stays_zero(compressor: Compressor, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        for x in (vector(), np.zeros(12)):
            found = send(compressor, jax.random.key(3), jnp.asarray(x, dtype))
            assert found.shape == (12,)
            assert found.dtype == dtype
            assert bool(jnp.isfinite(found).all())
        assert not np.asarray(found).any()  # the last was the zero vector


@pytest.mark.parametrize("compressor", [RandK(12), RandK(12, seeded=False), TopK(12), Identity()], ids=str)
def test_all_coordinates_are_the_identity(compressor: Compressor) -> None:
    x = jnp.asarray(vector(), jnp.float32)
    np.testing.assert_array_equal(send(compressor, jax.random.key(0), x), x)


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_the_same_key_gives_the_same_message_and_another_key_another(compressor: Compressor) -> None:
    x = jnp.asarray(vector(), jnp.float32)
    first = compressor(jax.random.key(0), x)
    np.testing.assert_array_equal(first, send(compressor, jax.random.key(0), x))  # numbers static or traced
    others = [send(compressor, jax.random.key(seed), x) for seed in range(1, 6)]
    random = not isinstance(compressor, Identity | TopK) and compressor != RandK(12)
    assert any((other != first).any() for other in others) == random


def test_rand_k_sends_exactly_k_scaled_coordinates_all_subsets_alike() -> None:
    found = draws(RandK(2), jnp.arange(1.0, 6.0))
    assert ((found != 0).sum(axis=1) == 2).all()
    np.testing.assert_allclose(found[found != 0], (np.tile(np.arange(1.0, 6.0), (DRAWS, 1)) * 2.5)[found != 0])
    _, counts = np.unique(found != 0, axis=0, return_counts=True)
    expected = DRAWS / 10
    assert len(counts) == 10
    assert ((counts - expected) ** 2 / expected).sum() < 40  # chi-square, 9 degrees of freedom: p < 1e-5


def test_a_receiver_with_the_seed_can_place_the_values_of_rand_k() -> None:
    """The pattern depends on the key alone, so the k values are all that has to travel."""
    key = jax.random.key(9)
    pattern = np.asarray(RandK(4)(key, jnp.ones(12))) != 0
    np.testing.assert_array_equal(np.asarray(RandK(4)(key, 7 * jnp.arange(1.0, 13.0))) != 0, pattern)


def test_clients_may_differ_in_k_in_one_program() -> None:
    ks = jnp.array([1, 3, 8])
    x = jnp.arange(1.0, 9.0)
    keys = jax.random.split(jax.random.key(0), 3)
    found = jax.jit(jax.vmap(lambda c, key: c(key, x)))(RandK(ks), keys)
    np.testing.assert_array_equal((found != 0).sum(axis=1), ks)
    for row, key, k in zip(found, keys, (1, 3, 8), strict=True):
        np.testing.assert_allclose(row, RandK(k)(key, x))
    omega, bits = jax.jit(lambda c: (c.omega(8), c.bits(8, 32)))(RandK(ks, seeded=False))
    np.testing.assert_allclose(omega, [7, 8 / 3 - 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(bits, [35, 105, 280])
    np.testing.assert_array_equal(RandK(np.array([1, 3, 8])).bits(8, 64), [64, 192, 512])


def test_clients_may_differ_in_levels_in_one_program() -> None:
    levels = jnp.array([1, 4, 127])
    omega, bits = jax.jit(lambda c: (c.omega(16), c.bits(16, 32)))(Dithering(levels))
    np.testing.assert_allclose(omega, [4, 1, (4 / 127) ** 2], rtol=1e-6)
    np.testing.assert_array_equal(bits, [32 + 16 * 2, 32 + 16 * 4, 32 + 16 * 8])
    np.testing.assert_array_equal(Dithering(np.array([1, 4, 127])).bits(16, 32), bits)


def test_top_k_keeps_the_largest_magnitudes() -> None:
    x = jnp.array([0.5, -3.0, 2.0, 0.0, -2.0, 1.0])
    np.testing.assert_array_equal(TopK(3)(jax.random.key(0), x), [0, -3, 2, 0, -2, 0])
    np.testing.assert_array_equal(TopK(2)(jax.random.key(0), jnp.ones(4)), [1, 1, 0, 0])  # exactly k, ties too
    traced = jax.jit(jax.vmap(lambda c: c(jax.random.key(0), x)))(TopK(jnp.array([1, 2])))
    np.testing.assert_array_equal(traced, [[0, -3, 0, 0, 0, 0], [0, -3, 2, 0, 0, 0]])


@pytest.mark.parametrize(
    ("compressor", "size", "real", "expected"),
    [
        (Identity(), 112, 64, 7168),
        (RandK(10), 112, 64, 640),  # values alone
        (RandK(10, seeded=False), 112, 64, 710),  # and 7 bits for one of 112 coordinates
        (RandK(1, seeded=False), 128, 32, 39),  # 7 bits for one of 128
        (RandK(1, seeded=False), 129, 32, 40),  # 8 bits for one of 129
        (RandK(1, seeded=False), 1, 32, 32),  # nothing to name
        (TopK(10), 112, 32, 390),
        (Dithering(1), 100, 32, 232),  # norm, then sign and 1 bit each
        (Dithering(3), 100, 32, 332),  # 0..3: 2 bits
        (Dithering(4), 100, 64, 464),  # 0..4: 3 bits
        (Natural(), 100, 32, 900),
        (Natural(), 100, 64, 1200),
        (RandK(10**9), 2 * 10**9, 64, 64 * 10**9),  # plain numbers do not overflow
    ],
    ids=str,
)
def test_bits_by_hand(compressor: Compressor, size: int, real: int, expected: int) -> None:
    assert compressor.bits(size, real) == expected


@pytest.mark.parametrize(
    ("compressor", "size", "expected"),
    [
        (Identity(), 9, 0.0),
        (RandK(2), 10, 4.0),
        (Dithering(8), 16, 0.25),
        (Dithering(2), 100, 5.0),
        (Natural(), 5, 1 / 8),
    ],
    ids=str,
)
def test_omega_by_hand(compressor: Compressor, size: int, expected: float) -> None:
    assert compressor.omega(size) == pytest.approx(expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_natural_rounds_to_the_neighbouring_powers_of_two(dtype: str) -> None:
    """Everywhere in the range: exact powers and zeros stay, all others become one of their two neighbours."""
    info = np.finfo(dtype)
    exponents = np.arange(info.minexp, info.maxexp)
    powers = np.ldexp(np.ones(1, dtype), exponents).astype(dtype)
    above, below = np.nextafter(powers, np.inf, dtype=dtype), np.nextafter(powers[1:], 0, dtype=dtype)
    middle = (powers[:-1] * 1.5).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        natural = jax.jit(Natural())

        def message(x: np.ndarray, seed: int = 0) -> np.ndarray:
            return np.asarray(natural(jax.random.key(seed), jnp.asarray(x)))

        np.testing.assert_array_equal(message(powers), powers)
        np.testing.assert_array_equal(message(-powers), -powers)
        for x in (above[:-1], below, middle):
            low = np.exp2(np.frexp(x)[1] - 1.0).astype(dtype)
            for sign in (1, -1):
                found = message((sign * x).astype(dtype))
                assert ((found == sign * low) | (found == sign * 2 * low)).all()
        ups = np.mean([message(middle, seed) == powers[1:] for seed in range(10)])
        assert ups == pytest.approx(0.5, abs=5 * 0.5 / (10 * middle.size) ** 0.5)
        assert message(np.array([info.max, -info.max], dtype)).tolist() == [powers[-1], -powers[-1]]  # saturates
        odd = message(np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype))
        np.testing.assert_array_equal(odd, np.array([0, 0, np.inf, -np.inf, np.nan], dtype))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("levels", [1, 5])
def test_dithering_works_at_any_scale(scale: float, levels: int) -> None:
    """Squares of such numbers are not single-precision numbers, but the message is that of the plain vector, scaled."""
    x = np.array([3.0, -4.0, 0.0], np.float32)
    key = jax.random.key(5)
    plain = np.asarray(Dithering(levels)(key, jnp.asarray(x)))
    found = np.asarray(Dithering(levels)(key, jnp.asarray(x * np.float32(scale))))
    np.testing.assert_allclose(found / np.float32(scale), plain, rtol=1e-5)
    assert set(np.round(np.abs(plain) * levels / 5, 5)) <= set(range(levels + 1))


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_a_number_that_is_not_finite_is_never_hidden(compressor: Compressor) -> None:
    """The engine leaves out a client whose upload is not finite; a compressor must not make it look healthy."""
    for bad in (np.nan, np.inf):
        for seed in range(4):
            x = jnp.asarray(vector(), jnp.float32).at[3].set(bad)
            assert not jnp.isfinite(send(compressor, jax.random.key(seed), x)).all()


def test_a_config_names_a_compressor() -> None:
    assert make("natural") == Natural()
    assert make({"name": "rand_k", "k": 10}) == RandK(10)
    assert make({"name": "rand_k", "k": 10, "seeded": False}) == RandK(10, seeded=False)
    assert make({"name": "dithering", "levels": 4}) == Dithering(4)
    assert make(TopK(2)) == TopK(2)
    np.testing.assert_array_equal(make({"name": "top_k", "k": [1, 2]}).bits(4, 32), [34, 68])
    assert set(COMPRESSORS) == {"identity", "rand_k", "top_k", "dithering", "natural"}
    assert hash(make({"name": "rand_k", "k": 10})) == hash(RandK(10))  # may be a static part of a program


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randk", "did you mean 'rand_k'"),
        ("zip", "known: dithering, identity"),
        ({"k": 3}, "the key 'name' is missing"),
        ({"name": "rand_k"}, "compressor.k: rand_k needs it"),
        ({"name": "rand_k", "k": 3, "seed": True}, "did you mean 'seeded'"),
        ({"name": "natural", "k": 3}, "natural takes none"),
        ({"name": "rand_k", "k": 0}, "k must be a whole number at least 1, found 0"),
        ({"name": "rand_k", "k": 2.5}, "k must be a whole number at least 1, found 2.5"),
        ({"name": "rand_k", "k": True}, "k must be a whole number"),
        ({"name": "rand_k", "k": "all"}, "k must be a whole number"),
        ({"name": "rand_k", "k": [1, 2.0]}, "list of them with one per client"),
        ({"name": "rand_k", "k": 3, "seeded": "no"}, "seeded must be true or false, found 'no'"),
        ({"name": 3}, "unknown compressor 3"),
        (7, "found 7"),
    ],
    ids=str,
)
def test_a_wrong_config_is_answered_with_a_sentence(spec: object, message: str) -> None:
    with pytest.raises(PolyfedError, match=message):
        make(spec)  # type: ignore[arg-type]


def test_parameters_must_fit_the_vector() -> None:
    with pytest.raises(PolyfedError, match="rand_k: k must be a whole number from 1 to 5, found 6"):
        RandK(6).check(5)
    with pytest.raises(PolyfedError, match="top_k: k must be a whole number from 1 to 5"):
        TopK(6)(jax.random.key(0), jnp.ones(5))
    with pytest.raises(PolyfedError, match="from 1 to 5"):
        RandK(np.array([1, 6])).check(5)
    with pytest.raises(PolyfedError, match="dithering: levels"):
        Dithering(0).check(5)
    with pytest.raises(PolyfedError, match="seeded"):
        RandK(1, seeded=1).check(5)  # type: ignore[arg-type]
    with pytest.raises(PolyfedError, match="nothing to compress"):
        Identity().check(0)
    with pytest.raises(PolyfedError, match="biased"):
        TopK(1).omega(5)
    with pytest.raises(PolyfedError, match="32 or 64 bits, found 16"):
        Natural().bits(5, 16)
    with pytest.raises(PolyfedError, match="float32 or float64, found bfloat16"):
        Natural()(jax.random.key(0), jnp.ones(3, jnp.bfloat16))
    for compressor in ALL:
        compressor.check(12)


@pytest.mark.parametrize("k", [1, 7, 40])
def test_rand_k_chooses_the_same_whether_k_is_part_of_the_program_or_its_input(k) -> None:
    x, key = jnp.arange(1.0, 41.0), jax.random.key(5)
    np.testing.assert_array_equal(RandK(k)(key, x), RandK(jnp.asarray(k))(key, x))
