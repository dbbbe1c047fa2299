"""APFL, the meta-learning methods, pFedMe, q-FedAvg, L2GD and Ditto in plain NumPy, from the papers' pseudo-code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from polyfed.core import randomness
from polyfed.core.randomness import Purpose
from tests.algorithms.reference import Client, Matrix, batches, clients_of

Cohort = Callable[[int], list[int]]


def loss(client: Client, params: Matrix) -> float:
    """f_i: mean cross-entropy and ridge."""
    logits = client.a @ params
    logits = logits - logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-np.mean(np.sum(client.onehot * log_p, axis=1)) + 0.5 * client.l2 * np.sum(params**2))


def hessian_product(client: Client, params: Matrix, direction: Matrix, rows: np.ndarray | None) -> Matrix:
    """The Hessian of the softmax loss times a direction, in closed form."""
    a = client.a if rows is None else client.a[rows]
    logits = a @ params
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    moved = a @ direction
    inner = p * moved - p * np.sum(p * moved, axis=1, keepdims=True)
    return a.T @ inner / len(a) + client.l2 * direction


def apfl(
    problem,
    rounds,
    lr: Callable[[int, int], float],
    steps,
    batch,
    alpha,
    cohort: Cohort,
    adaptive="off",
    alpha_lr=None,
    validation: Callable[[int, Matrix], Matrix] | None = None,
    seed=0,
    start=None,
) -> dict[str, list]:
    """Algorithm 1 with eq. (10), and every iterate; `lr(round, t)` where t counts the steps from 1."""
    clients = clients_of(problem)
    w = start
    v, alpha = [start.copy() for _ in clients], list(alpha)
    iterates_w, iterates_v = [], []  # after each step: the mean of the participants' w_j, and everybody's v_i
    for r in range(rounds):
        members = cohort(r)
        local = {i: w.copy() for i in members}
        rows = {i: list(batches(problem, seed, r, i, batch, steps)) for i in members}
        for k in range(steps):
            t = r * steps + k + 1
            for i in members:
                f, xi = clients[i], rows[i][k]
                mixed = alpha[i] * v[i] + (1 - alpha[i]) * local[i]
                g = f.grad(mixed, xi)
                new_v = v[i] - lr(r, t) * alpha[i] * g
                if adaptive == "step" or (adaptive == "round" and k == 0):
                    slope = np.sum((v[i] - local[i]) * (g if validation is None else validation(i, mixed)))
                    rate = lr(r, t) if alpha_lr is None else alpha_lr
                    new_alpha = min(1.0, max(0.0, alpha[i] - rate * slope))
                else:
                    new_alpha = alpha[i]
                local[i] = local[i] - lr(r, t) * f.grad(local[i], xi)
                v[i], alpha[i] = new_v, new_alpha
            iterates_w.append(np.mean([local[i] for i in members], axis=0))
            iterates_v.append([x.copy() for x in v])
        w = np.mean([local[i] for i in members], axis=0)
    return {"w": w, "v": v, "alpha": alpha, "iterates_w": iterates_w, "iterates_v": iterates_v}


def apfl_newcomer(problem, client, w, lr, steps, alpha, adaptive) -> Matrix:
    """Eq. (17) on all of a client's rows, with eq. (10) at every step where `adaptive`."""
    f, v = clients_of(problem)[client], w.copy()
    for _ in range(steps):
        g = f.grad(alpha * v + (1 - alpha) * w)
        v, alpha = v - lr * alpha * g, min(1.0, max(0.0, alpha - lr * np.sum((v - w) * g))) if adaptive else alpha
    return alpha * v + (1 - alpha) * w


def perfedavg(problem, rounds, lr, inner_lr, steps, batch, variant, delta=None, seed=0, start=None) -> Matrix:
    """Algorithm 1 of Fallah et al.: each step has three batches D, D', D''."""
    clients, w = clients_of(problem), start
    for r in range(rounds):
        models = []
        for i, f in enumerate(clients):
            y = w.copy()
            for k, second in enumerate(batches(problem, seed, r, i, batch, steps)):
                first, third = (side_batch(problem, seed, r, i, k, which, batch) for which in (0, 1))
                g = f.grad(y - inner_lr * f.grad(y, first), second)
                if variant == "exact":
                    g = g - inner_lr * hessian_product(f, y, g, third)
                elif variant == "hessian-free":
                    g = g - inner_lr * (f.grad(y + delta * g, third) - f.grad(y - delta * g, third)) / (2 * delta)
                y = y - lr * g
            models.append(y)
        w = np.mean(models, axis=0)
    return w


def side_batch(problem, seed: int, round: int, client: int, step: int, which: int, batch) -> np.ndarray | None:
    """The rows of D (which = 0) or D'' (which = 1) of a step, from the library's keys and sampler."""
    if batch is None:
        return None
    size = len(problem.federation.train.of(client)[0])
    words = tuple(int(word) for word in problem.client_ids[client])
    return _side_rows(seed, round, words, step, which, size)[:batch]


@cache
def _side_rows(seed, round, words, step, which, size) -> np.ndarray:
    key = randomness.client_key(
        randomness.purpose_key(np.uint32(seed), Purpose.LOCAL, round), np.array(words, np.uint32)
    )
    key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2**31 - 1), step))[which]
    return np.asarray(randomness.shuffled(jax.random.fold_in(key, 0), size, jnp.arange(size)))


def fomaml(problem, rounds, lr, inner_lr, steps, batch, seed=0, start=None) -> Matrix:
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


def reptile(problem, rounds, lr, epsilon, steps, batch, seed=0, start=None) -> Matrix:
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
    problem, rounds, lr, inner_lr, penalty, inner_steps, steps, batch, beta, cohort: Cohort, seed=0, start=None
) -> tuple[Matrix, list[Matrix]]:
    """Algorithm 1 of Dinh et al.: w and every theta_i."""
    clients, w = clients_of(problem), start
    thetas = [start.copy() for _ in clients]
    for r in range(rounds):
        members, models = cohort(r), []
        for i in members:
            w_i, theta = w.copy(), w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                for _ in range(inner_steps):
                    theta = theta - inner_lr * (clients[i].grad(theta, rows) + penalty * (theta - w_i))
                w_i = w_i - lr * penalty * (w_i - theta)
            thetas[i] = theta
            models.append(w_i)
        w = (1 - beta) * w + beta * np.mean(models, axis=0)
    return w, thetas


def qfedavg(problem, rounds, lr, q, steps, batch, L=None, seed=0, start=None) -> Matrix:
    """Algorithm 2 of Li et al."""
    clients, w = clients_of(problem), start
    L = 1 / lr if L is None else L
    for r in range(rounds):
        moves, curvatures = 0.0, 0.0
        for i, f in enumerate(clients):
            y = w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * f.grad(y, rows)
            delta = L * (w - y)
            value = loss(f, w)
            moves = moves + value**q * delta
            curvatures += q * value ** (q - 1) * np.sum(delta**2) + L * value**q
        w = w - moves / curvatures
    return w


def l2gd(problem, coins: list[int], alpha, penalty, p, start) -> tuple[list[Matrix], Matrix]:
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
    problem, rounds, lr, own_lr, penalty, steps, own_steps, batch, cohort: Cohort, seed=0, start=None
) -> tuple[Matrix, list[Matrix]]:
    """Algorithm 1 of Li et al. with FedAvg: the global model and every v_i, which is anchored at the round's w."""
    clients, w = clients_of(problem), start
    v = [start.copy() for _ in clients]
    for r in range(rounds):
        members, total, weight = cohort(r), 0.0, 0.0
        for i in members:
            y = w.copy()
            for rows in batches(problem, seed, r, i, batch, steps):
                y = y - lr * clients[i].grad(y, rows)
            for rows in batches(problem, seed, r, i, batch, own_steps):
                v[i] = v[i] - own_lr * (clients[i].grad(v[i], rows) + penalty * (v[i] - w))
            total, weight = total + clients[i].size * y, weight + clients[i].size
        w = total / weight
    return w, v


def minibatch(problem, rounds, lr, steps, batch, seed=0, start=None) -> Matrix:
    clients, w = clients_of(problem), start
    for r in range(rounds):
        gradients = [
            f.grad(w, rows) for i, f in enumerate(clients) for rows in batches(problem, seed, r, i, batch, steps)
        ]
        w = w - lr * np.mean(gradients, axis=0)
    return w
