"""PyTorch's side of the benchmarks' models, from a file with our arrays; for the loops in a Python that has PyTorch.

It imports nothing of polyfed.
"""

import json
from functools import cache

import numpy as np
import torch
from torch import nn


class CharacterModel(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.last = nn.Linear(256, tokens)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0][:, -1])


def read(path: str, options):
    """The clients' inputs (clients, rows, ...) and labels as arrays, and the model at its initial weights.

    Bytes become numbers from 0 to 1; images get a channel, which PyTorch has first.
    """
    with np.load(path) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    x, y, kind = given.pop("x"), given.pop("y").astype(np.int64), options["model"]
    if kind == "lstm":
        return x.astype(np.int64), y, lstm(given)
    x = x / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)
    if kind in ("mlp", "linear"):
        return x.reshape(*x.shape[:2], -1), y, mlp(given if kind == "mlp" else {"0.w": given["w"], "0.b": given["b"]})
    return x[:, :, None], y, cnn(given, options["dropout"])


@cache
def tensors(path: str, options: str):
    """The same as tensors; read once in a process."""
    x, y, model = read(path, json.loads(options))
    return torch.tensor(x), torch.tensor(y), model


def mlp(given) -> nn.Module:
    """784-200-200-10 and the like: a linear layer for each of the given, ReLU between them."""
    layers: list[nn.Module] = []
    for number in range(sum(name.endswith(".w") for name in given)):
        w = given[f"{number}.w"]
        layers += [*([nn.ReLU()] if number else []), filled(nn.Linear(*w.shape), w.T, given[f"{number}.b"])]
    return nn.Sequential(*layers)


def cnn(given, dropout) -> nn.Module:
    """Two convolutions, pooling, two linear layers; PyTorch's images have their channels first."""
    (first, second), (inner, last) = ([given[f"{part}.{k}.w"] for k in (0, 1)] for part in ("conv", "fc"))
    side, depth = round((inner.shape[0] / second.shape[-1]) ** 0.5), second.shape[-1]
    inner = inner.reshape(side, side, depth, -1).transpose(2, 0, 1, 3).reshape(inner.shape)
    convolutions = [
        filled(nn.Conv2d(*w.shape[2:], w.shape[0]), w.transpose(3, 2, 0, 1), given[f"conv.{k}.b"])
        for k, w in enumerate((first, second))
    ]
    linear = [filled(nn.Linear(*w.shape), w.T, given[f"fc.{k}.b"]) for k, w in enumerate((inner, last))]
    drop = [[nn.Dropout(share)] if share else [] for share in dropout]
    features = convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), nn.MaxPool2d(2), *drop[0]
    return nn.Sequential(*features, nn.Flatten(), linear[0], nn.ReLU(), *drop[1], linear[1])


def lstm(given) -> nn.Module:
    """PyTorch orders the gates otherwise, and has a second bias, which adds nothing: it stays 0."""
    model = CharacterModel(len(given["embedding"]))
    model.embedding.weight.data = torch.tensor(given["embedding"])
    filled(model.last, given["fc.w"].T, given["fc.b"])
    for k in (0, 1):
        w, b = (np.split(given[f"lstm.{k}.{part}"], 4, axis=-1) for part in ("w", "b"))
        w, b = (np.concatenate([part[i] for i in (0, 1, 3, 2)], axis=-1) for part in (w, b))
        inputs = len(w) - 256
        for name, value in (("weight_ih", w[:inputs].T), ("weight_hh", w[inputs:].T), ("bias_ih", b)):
            getattr(model.lstm, f"{name}_l{k}").data = torch.tensor(np.ascontiguousarray(value))
        getattr(model.lstm, f"bias_hh_l{k}").data.zero_()
        getattr(model.lstm, f"bias_hh_l{k}").requires_grad_(False)
    return model


def filled(layer, weight, bias):
    layer.weight.data = torch.tensor(np.ascontiguousarray(weight))
    layer.bias.data = torch.tensor(bias)
    return layer


@torch.no_grad()
def mean_loss(model, x, y) -> float:
    """The mean over the clients of the model's loss on their rows."""
    model.eval()
    losses = [float(nn.functional.cross_entropy(model(rows), labels)) for rows, labels in zip(x, y)]  # noqa: B905
    model.train()
    return sum(losses) / len(losses)
