"""Flower's processes, and ours beside them."""
