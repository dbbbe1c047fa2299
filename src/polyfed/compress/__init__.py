"""Compressors: what a client sends in place of a vector.

contract.py     what a compressor is
identity.py     none
rand_k.py       coordinates that are drawn at random
top_k.py        the coordinates of largest magnitude
dithering.py    levels between zero and the vector's norm
natural.py      powers of two
sealed.py       a compressed part of an upload, with what it was made from
named.py        compressors by the name that a config gives them
numbers.py      k and the number of levels: plain, traced, or one per client
"""

from polyfed.compress.contract import Code, Compressor
from polyfed.compress.dithering import Dithering
from polyfed.compress.identity import Identity
from polyfed.compress.named import COMPRESSORS, make
from polyfed.compress.natural import Natural
from polyfed.compress.rand_k import RandK
from polyfed.compress.sealed import Sealed
from polyfed.compress.top_k import TopK

__all__ = [
    "COMPRESSORS",
    "Code",
    "Compressor",
    "Dithering",
    "Identity",
    "Natural",
    "RandK",
    "Sealed",
    "TopK",
    "make",
]
