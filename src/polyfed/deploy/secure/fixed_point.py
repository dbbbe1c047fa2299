"""Real numbers as whole ones, whose sums are exact under masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from polyfed.deploy.protocol.plain_values import Refused

WORD = np.dtype("<u8")
"""The type of the words that travel: sums are modulo 2^64."""
GUARD = 2


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers up to `bound` as whole ones, so that the sum of `parties` of them fits into 63 bits.

    A number takes `words` of them: each further word holds what the one before rounds off. `GUARD` bits stay free, so
    that a sum which something was added to in the highest bits is seen.
    """

    bound: float
    parties: int
    words: int = 1

    @property
    def scale(self) -> float:
        return 2.0 ** (62 - GUARD - ceil(log2(self.parties * self.bound)))

    @property
    def finer(self) -> float:
        """How much finer each word is than the one before. A word rounds off half a unit at most."""
        return 2.0 ** (62 - ceil(log2(self.parties)))

    @property
    def error(self) -> float:
        """The most that a number of the sum is off."""
        return self.parties * 0.5 / self.scale / self.finer ** (self.words - 1)

    def encoded(self, vector: np.ndarray) -> np.ndarray:
        if not np.isfinite(vector).all():
            raise Refused("its update is not finite")
        largest = float(np.max(np.abs(vector), initial=0.0))
        if largest > self.bound:
            raise Refused(f"a number of its upload is {largest:g}, beyond federation.bound = {self.bound:g}")
        rest, parts = vector * self.scale, []
        for _ in range(self.words):
            whole = np.rint(rest)
            rest = (rest - whole) * self.finer
            parts.append(whole.astype(np.int64).astype(WORD))
        return np.concatenate(parts)

    def decoded(self, words: np.ndarray) -> np.ndarray:
        """The sum as real numbers. A sum that its terms cannot have is refused."""
        parts = words.astype(np.int64).reshape(self.words, -1)
        total = _exact_sum([part / self.finer**place for part, place in _halves(parts)]) / self.scale
        if np.max(np.abs(total), initial=0.0) > self.parties * self.bound + self.error:
            raise Refused("the sum is beyond what its uploads can add up to")
        return total


def _halves(parts: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Each word as two real numbers that lose no digit, the coarsest first, with the word's place."""
    for place, part in enumerate(parts):
        low = part & 0xFFFFFFFF
        yield (part - low).astype(np.float64), place
        yield low.astype(np.float64), place


def _exact_sum(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """Their sum, with what each addition rounds off added at the end (Knuth's two-sum)."""
    total, lost = np.zeros_like(numbers[0]), np.zeros_like(numbers[0])
    for number in numbers:
        after = total + number
        back = after - total
        lost += (total - (after - back)) + (number - back)
        total = after
    return total + lost
