"""The same round as a plain PyTorch loop, in a Python that has PyTorch: one number of seconds per line of input.

It imports nothing of polyfed. Every client copies the global model, takes its SGD steps, and is added to the mean.
"""

import copy
import sys
import time

import torch


def main() -> None:
    clients, steps, batch, rows = (int(word) for word in sys.argv[1:5])
    torch.manual_seed(0)
    x = torch.randn(clients, rows, 784)
    y = torch.randint(0, 10, (clients, rows))
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10)
    )
    loss = torch.nn.CrossEntropyLoss()

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
