"""Nets on MNIST by writer (in FEMNIST's place) and on Shakespeare by role: Scafflix's and FLIX's figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax

from polyfed.core.startup import start
from polyfed.papers.shared.held_out import Options, options
from polyfed.papers.shared.tuned import Setting

P, BATCH, COHORT, SEEDS = 0.2, 20, 10, 5
SCAFFLIX_ROUNDS, FLIX_ROUNDS = 1000, 3000
"""The papers'."""
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
WRITERS, ROLES = "MNIST by writer", "Shakespeare by role"


@dataclass(frozen=True)
class NetTask:
    """A dataset with its net, and how much is run on it."""

    name: str
    setting: Setting
    alphas: tuple[float, ...]
    local: Options
    """how pure local models are trained, but for the stepsize"""
    seeds: int
    budget: int
    """candidates for each method: as many as the setting has rates; 0 where nothing is tuned"""
    scope: str
    """its size beside the paper's, but for rounds and alphas; nothing in a quick run"""

    def size(self, published: int = SCAFFLIX_ROUNDS, rounds: int | None = None) -> str:
        """The same with the rounds that are run, beside the published ones."""
        rounds = self.setting.rounds if rounds is None else rounds
        fewer = "" if rounds == published else f" instead of {published:,}"
        return self.scope and f"{self.scope}, {rounds:,} rounds{fewer}"

    def whole_size(self, published: int = SCAFFLIX_ROUNDS) -> str:
        """And with its alphas."""
        return self.scope and f"{self.size(published)}, alpha = {', '.join(f'{alpha:g}' for alpha in self.alphas)}"


def scope_of(scopes: Mapping[str, str]) -> str:
    """What a page says of its size; `scopes`: by dataset."""
    sizes = " ".join(f"{name}: {scope}." for name, scope in scopes.items() if scope)
    if not sizes:
        return ""
    if accelerated():
        return f"**Smaller than in the paper.** {sizes}"
    small = "**Not the paper's size, but one that two cores can do.**"
    return f"{small} {sizes} On an accelerator the same command runs a larger size."


def _setting(source: str, data: Options, model: str, rounds: int, rates: tuple[float, ...]) -> Setting:
    every = max(rounds // 10, 1)
    return Setting(source, data, model, 0.0, rounds, 10, BATCH, rates, participation=COHORT, every=every)


def accelerator_size() -> dict[str, NetTask]:
    """What an accelerator does: handwriting at the paper's size, and some of the roles."""
    few = "three stepsizes, those around the best, instead of six"
    rates = (0.03, 0.1, 0.3)
    writers = _setting("mnist_by_writer", (), "femnist_cnn", 1000, rates)
    local = options(plm_epochs=100, plm_batch=100)
    steep = (0.3, 1.0, 3.0)
    roles = _setting("shakespeare", options(clients=100, predict="all"), "lstm", 1000, steep)
    return {
        WRITERS: NetTask(WRITERS, writers, ALPHAS, local, SEEDS, len(rates), f"all writers and the CNN, {few}"),
        ROLES: NetTask(
            ROLES,
            roles,
            ALPHAS,
            options(plm_epochs=25, plm_batch=BATCH),
            SEEDS,
            len(steep),
            f"100 roles instead of all, {few}",
        ),
    }


def small_size() -> dict[str, NetTask]:
    """What two cores can do."""
    rates = (0.03, 0.1, 0.3)
    writers = _setting("mnist_by_writer", options(clients=50), "mlp32", 100, rates)
    roles = _setting("shakespeare", options(clients=12, length=40, predict="all"), "lstm32", 30, (1.0, 3.0, 10.0))
    handwriting = (
        "50 writers instead of all, an MLP with one hidden layer of 32 instead of the CNN, three stepsizes instead of "
        "six"
    )
    plays = (
        "12 roles instead of all, 40 characters at a time instead of 80, an LSTM of width 32 instead of 256, three "
        "stepsizes instead of six"
    )
    local = options(plm_epochs=20, plm_batch=BATCH)
    return {
        WRITERS: NetTask(WRITERS, writers, (0.1, 0.5, 0.9), local, SEEDS, len(rates), handwriting),
        ROLES: NetTask(ROLES, roles, (0.1, 0.3, 0.9), local, SEEDS, len(rates), plays),
    }


def quick_size() -> dict[str, NetTask]:
    writers = _setting("mnist_by_writer", options(clients=12), "mlp32", 5, (0.1,))
    roles = _setting("shakespeare", options(clients=10, length=20, predict="all"), "lstm32", 2, (1.0,))
    local = options(plm_epochs=2, plm_batch=BATCH)
    return {
        WRITERS: NetTask(WRITERS, writers, (0.1, 0.5), local, 2, 0, ""),
        ROLES: NetTask(ROLES, roles, (0.3, 0.5), local, 2, 0, ""),
    }


def tasks(quick: bool) -> dict[str, NetTask]:
    """The size that fits the device."""
    return quick_size() if quick else accelerator_size() if accelerated() else small_size()


def accelerated() -> bool:
    start()
    return jax.default_backend() != "cpu"


def label_of(method: str, alpha: float) -> str:
    return f"{method}, α = {alpha:g}"
