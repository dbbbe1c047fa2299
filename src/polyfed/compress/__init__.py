"""Compressors: what a client sends in place of a vector, how far off that may be, and the bits that it takes."""

from polyfed.compress.compressors import Compressor, Dithering, Identity, Natural, RandK, Sealed, TopK, make

__all__ = ["Compressor", "Dithering", "Identity", "Natural", "RandK", "Sealed", "TopK", "make"]
