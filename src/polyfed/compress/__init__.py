"""Compressors: what a client sends in place of a vector."""
