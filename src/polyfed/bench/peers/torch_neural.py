"""Rounds of the neural models as plain PyTorch loops, in a Python that has PyTorch: an answer per line of input.

It imports nothing of polyfed. Every client copies the global model, takes its SGD steps, and is added to the mean; in
APFL it also steps a model of its own, by the gradient of the mixture of the two; in SCAFFOLD it has a control variate.
"""

import copy
import json
import sys
import time
from typing import Any

import torch
import torch_models
from torch import nn

LR = 0.1


class Loop:
    def __init__(self, path: str, options) -> None:
        self.device, self.cuda = options["device"], options["device"] == "cuda"
        x, y, model = torch_models.tensors(path, json.dumps(options))
        self.x, self.y, self.model = x.to(self.device), y.to(self.device), model.to(self.device)
        self.loss = nn.CrossEntropyLoss()
        self.steps, self.batch = options["steps"], options["batch"]
        self.clients, self.rows = self.y.shape[:2]
        self.cohorts = iter(options.get("cohorts") or [])
        self.own: Any = None
        self.alpha: Any = None
        self.control: Any = None
        if options["method"] == "apfl":
            # user code of apfl
            self.own = [copy.deepcopy(self.model) for _ in range(self.clients)]
            self.alpha = [0.5] * self.clients
            # end of user code
        if options["method"] == "scaffold":
            # user code of scaffold
            self.control = [self.zeros() for _ in range(self.clients + 1)]  # the last one is the server's
            # end of user code
        self.work = {"fedavg": self.averaging, "apfl": self.mixing, "scaffold": self.correcting}[options["method"]]

    # user code
    def round(self) -> None:
        cohort = next(self.cohorts, range(self.clients))
        total = self.zeros()
        for client in cohort:
            for sum_, p in zip(total, self.work(client).parameters()):  # noqa: B905
                sum_ += p.detach()
        with torch.no_grad():
            for p, sum_ in zip(self.model.parameters(), total):  # noqa: B905
                p.copy_(sum_ / len(cohort))

    def batches(self, client: int):
        order = torch.randperm(self.rows, device=self.device)
        for step in range(self.steps):
            chosen = order[torch.arange(step * self.batch, (step + 1) * self.batch, device=self.device) % self.rows]
            yield self.x[client, chosen], self.y[client, chosen]

    # user code of fedavg
    def averaging(self, client: int):
        local = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD([p for p in local.parameters() if p.requires_grad], lr=LR)
        for x, y in self.batches(client):
            optimizer.zero_grad()
            self.loss(local(x), y).backward()
            optimizer.step()
        return local

    # user code of scaffold
    def correcting(self, client: int):
        # option II
        mine, server = self.control[client], self.control[-1]
        local = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(local.parameters(), lr=LR)
        for x, y in self.batches(client):
            optimizer.zero_grad()
            self.loss(local(x), y).backward()
            for p, c, c_i in zip(local.parameters(), server, mine):  # noqa: B905
                p.grad += c - c_i
            optimizer.step()
        with torch.no_grad():
            parts = zip(self.model.parameters(), local.parameters(), server, mine)  # noqa: B905
            new = [(x - y) / (self.steps * LR) - c + c_i for x, y, c, c_i in parts]
            for change, after, before in zip(self.changes, new, mine):  # noqa: B905
                change += after - before
        self.control[client] = new
        return local

    # user code of apfl
    def mixing(self, client: int):
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

    # end of user code

    def timed(self) -> tuple[float, float]:
        """A round, with the step of the server's control variate where there is one; its seconds."""
        self.wait()
        begun, used = time.perf_counter(), time.process_time()
        self.changes = self.zeros()
        self.round()
        if self.control is not None:
            # user code of scaffold
            for c, change in zip(self.control[-1], self.changes):  # noqa: B905
                c += change / self.clients
            # end of user code
        self.wait()
        return time.perf_counter() - begun, time.process_time() - used

    def zeros(self):
        return [torch.zeros_like(p) for p in self.model.parameters()]

    @torch.no_grad()
    def deployed_loss(self) -> float:
        """The mean loss of what the clients deploy, on their own rows."""
        if self.own is None or self.alpha is None:
            return torch_models.mean_loss(self.model, self.x, self.y)
        losses = []
        for client in range(self.clients):
            model = copy.deepcopy(self.model).eval()
            for p, v in zip(model.parameters(), self.own[client].parameters()):  # noqa: B905
                p.lerp_(v, self.alpha[client])
            losses.append(float(self.loss(model(self.x[client]), self.y[client])))
        return sum(losses) / len(losses)

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
        print(*([loop.deployed_loss()] if line.strip() == "loss" else loop.timed()), flush=True)


main()
