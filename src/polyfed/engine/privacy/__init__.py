"""Differential privacy of clients."""
