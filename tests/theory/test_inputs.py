"""What the theorems take: bad input is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from polyfed import theory
from polyfed.core.errors import PolyfedError

L = np.array([4.0, 1.0, 2.0, 9.0])
MU = np.array([0.5, 0.1, 0.4, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.smoothness(L, [0.1, 0.2, 1.5, 0.1]), "at least 0 and at most 1, found 1.5 of client 2"),
        (lambda: theory.smoothness(L, [0.1, 0.2]), "found 4 of L and 2 of alpha"),
        (lambda: theory.smoothness([1.0, np.nan], 1.0), "L must be above 0, found nan of client 1"),
        (lambda: theory.smoothness([], 1.0), "L must be above 0, found nothing"),
        (lambda: theory.smoothness(np.ones((2, 2)), 1.0), "one number per client"),
        (lambda: theory.gd_rate(1.0, 2.0, 1.0), "mu must be at most L"),
        (lambda: theory.communications(0.5, 0.0, L, MU, 1.0), "epsilon must be above 0, found 0"),
        (lambda: theory.communications(-0.5, 0.1, L, MU, 1.0), "alpha must be at least 0"),
        (lambda: theory.largest_alpha(-1, 0.1, L, MU, 1.0), "communications must be a whole number"),
        (lambda: theory.dcgd_stepsize(L, 1.0, -1.0), "omega must be at least 0"),
        (lambda: theory.dcgd_stepsize(L, 1.0, 1.0, "weak"), "regime must be one of"),  # type: ignore[arg-type]
        (lambda: theory.diana_stepsize(L, 1.0, 1.0, 1.5), "beta must be above 0 and at most 1"),
        (lambda: theory.gd_gap_bound(1, L, MU, 1.0), "either the variance or the diameter"),
        (lambda: theory.dcgd_neighbourhood(np.ones(3), MU, 1.0, 1.0, 0.1), "a row per client"),
        (lambda: theory.scafflix_rate(1 / L, MU, 0.0), "probability must be above 0 and at most 1, found 0"),
        (lambda: theory.scafflix_rate(1 / L, MU, 1.1), "probability"),
        (lambda: theory.scafflix_stepsizes(-L, MU), "A must be above 0, found -4 of client 0"),
        (lambda: theory.scafflix_stepsizes(L, 0.0, 1.0, 0.1), "mu must be above 0"),
        (lambda: theory.expected_smoothness(1.0, np.ones((3, 2)), batch=0), "batch must be a whole number"),
        (lambda: theory.expected_smoothness([1.0, 2.0], np.ones((3, 2))), "a gradient per example"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(PolyfedError, match=message):
        call()
