"""Rounds of the neural models as plain PyTorch loops, in a Python that has PyTorch: an answer per line of input.

It imports nothing of polyfed. Every client copies the global model, takes its SGD steps, and is added to the mean;
in APFL it also steps a model of its own, by the gradient of the mixture of the two.
"""

import copy
import json
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

LR = 0.1


class CharacterModel(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.last = nn.Linear(256, tokens)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0][:, -1])


def mlp(given) -> nn.Module:
    """784-200-200-10 and the like: a linear layer for each of the given, ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
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


class Loop:
    def __init__(self, path: str, options) -> None:
        with np.load(path) as arrays:
            given = {name: arrays[name] for name in arrays.files}
        self.device, self.cuda = options["device"], options["device"] == "cuda"
        x, self.y = torch.tensor(given.pop("x")), torch.tensor(given.pop("y"), dtype=torch.int64).to(self.device)
        kind = options["model"]
        if kind == "lstm":
            self.x, model = x.long().to(self.device), lstm(given)
        elif kind == "mlp":
            self.x, model = (x / 255).to(self.device), mlp(given)
        else:
            self.x, model = (x[:, :, None] / 255).to(self.device), cnn(given, options["dropout"])
        self.model, self.loss = model.to(self.device), nn.CrossEntropyLoss()
        self.steps, self.batch = options["steps"], options["batch"]
        self.clients, self.rows = self.y.shape[:2]
        self.own = self.alpha = None
        if options["method"] == "apfl":
            self.own = [copy.deepcopy(self.model) for _ in range(self.clients)]
            self.alpha = [0.5] * self.clients

    def round(self) -> None:
        total = [torch.zeros_like(p) for p in self.model.parameters()]
        work = self.averaging if self.own is None else self.mixing
        for client in range(self.clients):
            for sum_, p in zip(total, work(client).parameters()):  # noqa: B905
                sum_ += p.detach()
        with torch.no_grad():
            for p, sum_ in zip(self.model.parameters(), total):  # noqa: B905
                p.copy_(sum_ / self.clients)

    def batches(self, client: int):
        order = torch.randperm(self.rows, device=self.device)
        for step in range(self.steps):
            chosen = order[torch.arange(step * self.batch, (step + 1) * self.batch, device=self.device) % self.rows]
            yield self.x[client, chosen], self.y[client, chosen]

    def averaging(self, client: int):
        local = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD([p for p in local.parameters() if p.requires_grad], lr=LR)
        for x, y in self.batches(client):
            optimizer.zero_grad()
            self.loss(local(x), y).backward()
            optimizer.step()
        return local

    def mixing(self, client: int):
        assert self.own is not None
        assert self.alpha is not None
        local, mixed = copy.deepcopy(self.model), copy.deepcopy(self.model)
        ours, own, mixture = (list(model.parameters()) for model in (local, self.own[client], mixed))
        optimizer = torch.optim.SGD(ours, lr=LR)
        for step, (x, y) in enumerate(self.batches(client)):
            alpha = self.alpha[client]
            with torch.no_grad():
                for m, v, w in zip(mixture, own, ours):  # noqa: B905
                    torch.lerp(w, v, alpha, out=m)
            optimizer.zero_grad()
            mixed.zero_grad()
            self.loss(mixed(x), y).backward()
            self.loss(local(x), y).backward()
            with torch.no_grad():
                if step == 0:  # the mixing weight moves once per round
                    slope = sum(torch.sum((v - w) * m.grad) for m, v, w in zip(mixture, own, ours))  # noqa: B905
                    self.alpha[client] = min(1.0, max(0.0, alpha - LR * float(slope)))
                for m, v in zip(mixture, own):  # noqa: B905
                    v.sub_(m.grad, alpha=LR * alpha)
            optimizer.step()
        return local

    @torch.no_grad()
    def deployed_loss(self) -> float:
        """The mean loss of what the clients deploy, on their own rows."""
        found = []
        for client in range(self.clients):
            model = copy.deepcopy(self.model).eval()
            if self.own is not None and self.alpha is not None:
                for p, v in zip(model.parameters(), self.own[client].parameters()):  # noqa: B905
                    p.lerp_(v, self.alpha[client])
            found.append(float(self.loss(model(self.x[client]), self.y[client])))
        return sum(found) / len(found)

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def main() -> None:
    options = json.loads(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(options["threads"])
    if options["device"] == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options["tf32"]
    loop = Loop(sys.argv[1], options)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "loss":
            print(loop.deployed_loss(), flush=True)
            continue
        loop.wait()
        begun, used = time.perf_counter(), time.process_time()
        loop.round()
        loop.wait()
        print(time.perf_counter() - begun, time.process_time() - used, flush=True)


main()
