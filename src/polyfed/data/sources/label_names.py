"""The names of the labels of published image datasets, in the order of their numbers."""

from __future__ import annotations

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CAPITALS, SMALL = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), tuple("abcdefghijklmnopqrstuvwxyz")
# In the merged versions a small letter that looks like its capital is counted as the capital.
MERGED = (*DIGITS, *CAPITALS, *"abdefghnqrt")
EMNIST = {
    "byclass": (*DIGITS, *CAPITALS, *SMALL),
    "bymerge": MERGED,
    "balanced": MERGED,
    "letters": CAPITALS,
    "digits": DIGITS,
    "mnist": DIGITS,
}
"""By the version of EMNIST."""
