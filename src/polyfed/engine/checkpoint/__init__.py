"""Checkpoints, and trees of arrays as files."""
