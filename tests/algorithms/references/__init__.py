"""The methods in plain NumPy, one file per paper, written from the pseudo-code: what the engine must match.

The arithmetic is their own. Batches and cohorts are drawn by the library, whose draws have their own tests.
"""
