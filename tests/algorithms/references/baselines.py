"""The baselines, from the pseudo-code of their papers."""

from __future__ import annotations

import numpy as np

from tests.algorithms.references.shared import Matrix, Members, batches, clients_of, independent_batch, trusted_share


def fedavg(problem, rounds, lr, steps, batch, weighting, mu=0.0, momentum=0.0, *, start: Matrix, seed=0) -> Matrix:
    """FedAvg; with mu > 0, FedProx."""
    clients = clients_of(problem)
    w = start
    for r in range(rounds):
        sum_of_models, sum_of_weights = np.zeros_like(start), 0.0
        for i, client in enumerate(clients):
            y, velocity = w.copy(), 0.0
            for rows in batches(problem, seed, r, i, batch, steps):
                velocity = momentum * velocity + client.grad(y, rows) + mu * (y - w)
                y = y - lr * velocity
            weight = client.size if weighting == "size" else 1.0
            sum_of_models, sum_of_weights = sum_of_models + weight * y, sum_of_weights + weight
        w = sum_of_models / sum_of_weights
    return w


def local(problem, rounds, lr, steps, batch, *, start: Matrix, seed=0) -> list[Matrix]:
    """Each client alone; `steps` a number, or one for each client."""
    models = [start.copy() for _ in range(len(problem))]
    for r in range(rounds):
        for i, client in enumerate(clients_of(problem)):
            for rows in batches(problem, seed, r, i, batch, steps if isinstance(steps, int) else steps[i]):
                models[i] = models[i] - lr * client.grad(models[i], rows)
    return models


def minibatchsgd(problem, rounds, lr, steps, batch, *, start: Matrix, seed=0) -> Matrix:
    """All gradients of a round at one point, and one step along their mean."""
    clients, w = clients_of(problem), start
    for r in range(rounds):
        gradients = [
            f.grad(w, rows) for i, f in enumerate(clients) for rows in batches(problem, seed, r, i, batch, steps)
        ]
        w = w - lr * np.mean(gradients, axis=0)
    return w


def scaffold(
    problem, rounds, lr, steps, batch, option, members: Members, server_lr=1.0, *, start: Matrix, seed=0, slack=None
) -> tuple[Matrix, Matrix, list[Matrix]]:
    """SCAFFOLD with the cohort of each round given: the model, c, and every c_i. `slack`: as in `trusted_share`."""
    clients = clients_of(problem)
    x, c = start, np.zeros_like(start)
    c_of = [np.zeros_like(start) for _ in clients]
    for r in range(rounds):
        present = members(r)
        moves, changes = [], []
        for i in present:
            y, on_the_way = x.copy(), []
            for rows in batches(problem, seed, r, i, batch, steps):
                g, h = clients[i].grad(y, rows), c_of[i] - c
                y = y - lr * (g - (1.0 if slack is None else trusted_share(g, h, slack)) * h)
                on_the_way.append(g)
            new = clients[i].grad(x) if option == "I" else np.mean(on_the_way, axis=0)
            moves.append(y - x)
            changes.append(new - c_of[i])
            c_of[i] = new
        x = x + server_lr * np.mean(moves, axis=0)
        c = c + len(present) / len(clients) * np.mean(changes, axis=0)
    return x, c, c_of


def perfedavg(problem, rounds, lr, inner_lr, steps, batch, variant, delta=0.01, *, start: Matrix, seed=0) -> Matrix:
    """Algorithm 1 of Fallah et al.: each step has three batches D, D', D''."""
    clients, w = clients_of(problem), start
    for r in range(rounds):
        models = []
        for i, f in enumerate(clients):
            y = w.copy()
            for k, second in enumerate(batches(problem, seed, r, i, batch, steps)):
                first, third = (independent_batch(problem, seed, r, i, k, which, batch) for which in (0, 1))
                g = f.grad(y - inner_lr * f.grad(y, first), second)
                if variant == "exact":
                    g = g - inner_lr * f.hessian_product(y, g, third)
                elif variant == "hessian-free":
                    g = g - inner_lr * (f.grad(y + delta * g, third) - f.grad(y - delta * g, third)) / (2 * delta)
                y = y - lr * g
            models.append(y)
        w = np.mean(models, axis=0)
    return w


def fomaml(problem, rounds, lr, inner_lr, steps, batch, *, start: Matrix, seed=0) -> Matrix:
    """Each client adapts by `steps` steps; the gradient of the next batch at the adapted model goes to the server."""
    clients, w = clients_of(problem), start
    for r in range(rounds):
        gradients = []
        for i, f in enumerate(clients):
            *support, query = batches(problem, seed, r, i, batch, steps + 1)
            x = w.copy()
            for rows in support:
                x = x - inner_lr * f.grad(x, rows)
            gradients.append(f.grad(x, query))
        w = w - lr * np.mean(gradients, axis=0)
    return w


def reptile(problem, rounds, lr, epsilon, steps, batch, *, start: Matrix, seed=0) -> Matrix:
    """Algorithm 1 of Nichol et al. in batches of clients: epsilon of the way to their mean."""
    clients, phi = clients_of(problem), start
    for r in range(rounds):
        moves = []
        for i, f in enumerate(clients):
            x = phi.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                x = x - lr * f.grad(x, rows)
            moves.append(x - phi)
        phi = phi + epsilon * np.mean(moves, axis=0)
    return phi


def pfedme(
    problem,
    rounds,
    lr,
    inner_lr,
    penalty,
    inner_steps,
    steps,
    batch,
    beta,
    members: Members,
    *,
    start: Matrix,
    seed=0,
) -> tuple[Matrix, list[Matrix]]:
    """Algorithm 1 of Dinh et al.: w and every theta_i."""
    clients, w = clients_of(problem), start
    thetas: dict[int, Matrix] = {}  # of those who came; for the others the global model stands
    for r in range(rounds):
        models = []
        for i in members(r):
            w_i, theta = w.copy(), w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                for _ in range(inner_steps):
                    theta = theta - inner_lr * (clients[i].grad(theta, rows) + penalty * (theta - w_i))
                w_i = w_i - lr * penalty * (w_i - theta)
            thetas[i] = theta
            models.append(w_i)
        w = (1 - beta) * w + beta * np.mean(models, axis=0)
    return w, [thetas.get(i, w) for i in range(len(clients))]


def qfedavg(problem, rounds, lr, q, steps, batch, L=None, *, start: Matrix, seed=0) -> Matrix:
    """Algorithm 2 of Li et al."""
    clients, w = clients_of(problem), start
    L = 1 / lr if L is None else L
    for r in range(rounds):
        moves, curvatures = np.zeros_like(start), 0.0
        for i, f in enumerate(clients):
            y = w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * f.grad(y, rows)
            delta = L * (w - y)
            value = f.loss(w)
            moves = moves + value**q * delta
            curvatures += q * value ** (q - 1) * np.sum(delta**2) + L * value**q
        w = w - moves / curvatures
    return w


def l2gd(problem, coins: list[int], alpha, penalty, p, *, start: Matrix) -> tuple[list[Matrix], Matrix]:
    """Algorithm 1 of Hanzely and Richtarik, coin by coin, in the paper's own parameters: every x_i, and their mean."""
    clients = clients_of(problem)
    n, x = len(clients), [start.copy() for _ in clients]
    for xi in coins:
        if xi == 0:
            x = [x_i - alpha / (n * (1 - p)) * f.grad(x_i) for x_i, f in zip(x, clients, strict=True)]
        else:
            share, mean = alpha * penalty / (n * p), np.mean(x, axis=0)
            x = [(1 - share) * x_i + share * mean for x_i in x]
    return x, np.mean(x, axis=0)


def ditto(
    problem,
    rounds,
    lr,
    own_lr,
    penalty,
    steps,
    own_steps,
    batch,
    members: Members,
    *,
    start: Matrix,
    seed=0,
) -> tuple[Matrix, list[Matrix]]:
    """Algorithm 1 of Li et al. with FedAvg: the global model and every v_i, which is anchored at the round's w."""
    clients, w = clients_of(problem), start
    v: dict[int, Matrix] = {}  # a client's begins at the w that it is first sent
    for r in range(rounds):
        total, weight = np.zeros_like(start), 0.0
        for i in members(r):
            y = w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * clients[i].grad(y, rows)
            v.setdefault(i, w)
            for rows in batches(problem, seed, r, i, batch, own_steps):
                v[i] = v[i] - own_lr * (clients[i].grad(v[i], rows) + penalty * (v[i] - w))
            total, weight = total + clients[i].size * y, weight + clients[i].size
        w = total / weight
    return w, [v.get(i, w) for i in range(len(clients))]
