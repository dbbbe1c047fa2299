"""Models: how to draw their parameters, and how to apply them.

base.py               what a model is; a user's own (init, apply) pair
dense.py              linear models and multi-layer perceptrons
conv.py, winograd.py  convolutional networks, and their 3 x 3 kernels with fewer products
recurrent.py          LSTMs over token ids
equinox_modules.py    Equinox modules
parameters.py         the names and shapes of a model's parameters
checks.py             the options of models, checked
"""

from polyfed.models.base import Architecture, Model, Params, SequenceArchitecture, built, own_model
from polyfed.models.conv import cifar_cnn, cnn, femnist_cnn, lenet
from polyfed.models.dense import linear, mlp
from polyfed.models.equinox_modules import equinox, is_module
from polyfed.models.recurrent import lstm

MODELS = {
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "femnist_cnn": femnist_cnn,
    "cifar_cnn": cifar_cnn,
    "lenet": lenet,
    "lstm": lstm,
}
"""The names that a config's `problem.model` may use."""

__all__ = [
    "MODELS",
    "Architecture",
    "Model",
    "Params",
    "SequenceArchitecture",
    "built",
    "cifar_cnn",
    "cnn",
    "equinox",
    "femnist_cnn",
    "is_module",
    "lenet",
    "linear",
    "lstm",
    "mlp",
    "own_model",
]
