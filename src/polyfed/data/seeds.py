"""Named random streams: randomness is a function of (seed, purpose) and never of what was drawn before."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator that depends on the seed and on the words of its purpose, such as ("split", client name)."""
    words = "\0".join(f"{type(word).__name__}:{word}" for word in purpose)
    digest = hashlib.blake2b(words.encode(), digest_size=16).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype="<u4").tolist()])
