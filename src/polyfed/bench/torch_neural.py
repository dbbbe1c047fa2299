"""Rounds of the neural models as plain PyTorch loops, in a Python that has PyTorch: seconds per line of input.

It imports nothing of polyfed. Every client copies the global model, takes its SGD steps, and is added to the mean.
"""

import copy
import sys
import time

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]


class CharacterModel(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.last = nn.Linear(256, tokens)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0][:, -1])


def main() -> None:
    kind = sys.argv[1]
    clients, steps, batch, rows, classes, threads = (int(word) for word in sys.argv[2:8])
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    y = torch.randint(0, classes, (clients, rows))
    if kind == "lstm":
        x = torch.randint(0, classes, (clients, rows, 80))
        model = CharacterModel(classes)
    else:
        x = torch.rand(clients, rows, 1, 28, 28)
        features = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)
        dense = nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)
        model = nn.Sequential(*features, *dense)
    loss = nn.CrossEntropyLoss()

    def round() -> None:
        total = [torch.zeros_like(p) for p in model.parameters()]
        for client in range(clients):
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
            order = torch.randperm(rows)
            for step in range(steps):
                chosen = order[torch.arange(step * batch, (step + 1) * batch) % rows]
                optimizer.zero_grad()
                loss(local(x[client, chosen]), y[client, chosen]).backward()
                optimizer.step()
            for sum_, p in zip(total, local.parameters()):  # noqa: B905
                sum_ += p.detach()
        with torch.no_grad():
            for p, sum_ in zip(model.parameters(), total):  # noqa: B905
                p.copy_(sum_ / clients)

    round()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        round()
        print(time.perf_counter() - begun, flush=True)


main()
