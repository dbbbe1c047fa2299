"""Sums whose terms nobody sees."""
