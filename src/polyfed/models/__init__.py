"""Models: linear, multi-layer perceptron, and any (init, apply) pair of a user's own."""

from polyfed.models.base import Architecture, Model, Params
from polyfed.models.dense import linear, mlp

MODELS = {"linear": linear, "mlp": mlp}
"""The names that a config's `problem.model` may use."""

__all__ = ["MODELS", "Architecture", "Model", "Params", "linear", "mlp"]
