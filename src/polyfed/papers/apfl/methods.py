"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning. What its figures and tables have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyfed.core.schedules import Decay
from polyfed.papers.shared import tuned
from polyfed.papers.shared.comparison import Comparison
from polyfed.papers.shared.held_out import options
from polyfed.papers.shared.tuned import Entry

PAPER = "Y. Deng, M. M. Kamani, M. Mahdavi, *Adaptive Personalized Federated Learning*, Section 6."
CLIENTS, STEPS, BATCH, RIDGE, SEEDS, ROUNDS = 100, 10, 20, 1e-4, 5, 100
ALPHAS = (0.25, 0.5, 0.75)
ADAPTIVE = "APFL, adaptive α"
PUBLISHED_LR = Decay(0.1, 0.99)
RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""The stepsizes that are tried with linear models; the paper's is 0.1."""
PARTITIONS = {
    "2 classes a client": options(partition="classes_per_client", k=2),
    "4 classes a client": options(partition="classes_per_client", k=4),
    "IID": options(partition="iid"),
}
MNIST = (
    "MNIST, 60,000 training images shared out over 100 clients, a tenth of each client's rows held out for validation; "
    "the published test images are shared out in the proportions of each client's own labels."
)
DIFFERENCES = (
    "Accuracy is on test rows that neither training nor tuning has seen, over all clients, sampled or not; the paper "
    "reports validation rows of the clients that are online. Stepsizes are tuned; the paper does not say how it chose "
    "its own. They decay by 1% a round (the text says iteration)."
)
RIDGE_NOTE = " The ridge is 1e-4, which the paper does not give."


def decays(rates: Sequence[float]) -> tuple[Decay, ...]:
    return tuple(Decay(rate, 0.99) for rate in rates)


def apfl_entries(
    rates: Sequence[float], work: Mapping[str, object], fixed: Sequence[float] = ALPHAS, start: float | None = None
) -> dict[str, Entry]:
    """APFL with fixed mixing weights and, where `start` is given, with one that is learned from there."""
    common, space = {"lr": PUBLISHED_LR, **work}, options(lr=decays(rates))
    entries = {
        f"APFL, α = {alpha:g}": Entry("apfl", options(alpha=alpha, adaptive="off", **common), "personal", space)
        for alpha in fixed
    }
    if start is not None:
        entries[ADAPTIVE] = Entry("apfl", options(alpha=start, adaptive="round", **common), "personal", space)
    return entries


def shared_entries(
    name: str, method: str, lrs: Sequence[Decay], lr: Decay, work: Mapping[str, object], judged: Sequence[str]
) -> dict[str, Entry]:
    """The global and localized models of FedAvg or SCAFFOLD."""
    words = {"global": "global", "finetuned": "localized"}
    more = {"weighting": "uniform"} if method == "fedavg" else {}
    given, space = options(lr=lr, **more, **work), options(lr=tuple(lrs))
    return {f"{name}, {words[kind]}": Entry(method, given, kind, space) for kind in judged}


def tuning_notes(comparison: Comparison, budget: int, rates: Sequence[float]) -> list[str]:
    """How the hyper-parameters were chosen, and which; no note where they are the paper's."""
    if not budget:
        return []
    tried = ", ".join(f"{rate:g}" for rate in rates)
    return [
        f"Tuning: {budget} candidates for every line of the table, the paper's values among them, on the first seed, "
        f"by the mean validation accuracy of the judged models after the last round; then all seeds with the winner. "
        f"A localized model also has its stepsize of fine-tuning chosen, from {tried}, on each candidate's global "
        "model, so that it has more to choose from than the others.",
        tuned.table(comparison.choices),
    ]
