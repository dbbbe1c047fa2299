"""Characters as token ids: LEAF's alphabet of 80 symbols, in the order of their codes."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from polyfed.core.errors import PolyfedError

ALPHABET = "".join(
    sorted("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789\n !\"&'(),-.:;>?[]}", key=ord)
)
OTHER = ALPHABET.index(" ")
"""The token id for a character outside the alphabet: a space."""
PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\r": "\n", "\t": " "})
_CODES = np.full(128, -1, np.int32)
_CODES[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))


def plain(text: str) -> str:
    """The text with typographic quotes, dashes and accents in their plain form."""
    if text.isascii() and "\r" not in text and "\t" not in text:
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text.translate(PLAIN)) if not unicodedata.combining(c))


def tokens(text: str) -> tuple[np.ndarray, int]:
    """(token ids of a text's characters as int32, how many were outside the alphabet and became a space)."""
    points = np.frombuffer(text.encode("utf-32-le"), "<u4")
    codes = _CODES[np.minimum(points, 127)]  # 127 is no character of the alphabet
    odd = codes < 0
    return np.where(odd, np.int32(OTHER), codes), int(odd.sum())


def foreign_note(count: int) -> str:
    """A note on characters that the alphabet does not have."""
    return f"{count:,} character{'s' if count != 1 else ''} outside the alphabet read as spaces"


def text_of(codes: Sequence[int] | np.ndarray) -> str:
    """The text of token ids."""
    ids = np.asarray(codes)
    if ids.size and (ids.min() < 0 or ids.max() >= len(ALPHABET)):
        raise PolyfedError(f"token ids must lie in 0..{len(ALPHABET) - 1}, found {ids.min()}..{ids.max()}")
    return "".join(ALPHABET[code] for code in ids.ravel())
