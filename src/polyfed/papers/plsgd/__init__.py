"""Additive personalized local SGD."""
