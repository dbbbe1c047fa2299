"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning. Its figures with linear models (1 to 4)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from polyfed.papers.apfl.methods import (
    ADAPTIVE,
    ALPHAS,
    BATCH,
    CLIENTS,
    DIFFERENCES,
    MNIST,
    PAPER,
    PARTITIONS,
    PUBLISHED_LR,
    RATES,
    RIDGE,
    RIDGE_NOTE,
    ROUNDS,
    SEEDS,
    STEPS,
    apfl_entries,
    decays,
    shared_entries,
    tuning_notes,
)
from polyfed.papers.shared import style
from polyfed.papers.shared.comparison import METRICS, Comparison, compare
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import Options, against, options, plus_minus
from polyfed.papers.shared.tuned import Entry, Setting

WORK = {"local_steps": STEPS, "batch": BATCH}
LEARNED = WORK | {"alpha_lr": PUBLISHED_LR}
"""alpha keeps the paper's stepsize, so that its ends can be compared."""
SYNTHETIC = (
    "of Li et al. with 100 clients, 60 features, 10 classes, log-normal sizes of at most 2,000 rows; a tenth of each "
    "client's rows are for validation, a fifth for test."
)


def _linear(source: str, data: Options, rounds: int, participation: float = 1.0) -> Setting:
    return Setting(source, data, "linear", RIDGE, rounds, STEPS, BATCH, RATES, participation)


def _mnist(partition: str, quick: bool, participation: float = 1.0) -> Setting:
    data = (*PARTITIONS[partition], ("clients", CLIENTS))
    return _linear("mnist", data, 15 if quick else ROUNDS, participation)


def _synthetic(level: float, quick: bool, **more: bool) -> Setting:
    data = options(alpha=level, beta=level, clients=30 if quick else CLIENTS, max_size=2000, **more)
    return _linear("synthetic", data, 30 if quick else ROUNDS)


def _fedavg(*judged: str) -> dict[str, Entry]:
    return shared_entries("FedAvg", "fedavg", decays(RATES), PUBLISHED_LR, WORK, judged)


def _scaffold(*judged: str) -> dict[str, Entry]:
    return shared_entries("SCAFFOLD", "scaffold", decays(RATES), PUBLISHED_LR, WORK, judged)


def _outcome(comparison: Comparison, claims: list[Claim], figure: Figure, quick: bool, **more: object) -> Outcome:
    budget = _budget(quick)
    settings = {"tau": STEPS, "batch": BATCH, "ridge": RIDGE, "seeds": _seeds(quick), "candidates": budget, **more}
    return Outcome(comparison.rows, claims, figure, settings, tuning_notes(comparison, budget, RATES))


def _seeds(quick: bool) -> int:
    return 1 if quick else SEEDS


def _budget(quick: bool) -> int:
    return 0 if quick else len(RATES)


@experiment(
    "apfl/fig1",
    paper=PAPER,
    title="One global model and personal models as clients grow apart",
    caption=(
        "Training loss and test accuracy after 100 rounds on synthetic(γ, γ) against γ, means over 100 clients and "
        "over seeds: the personal models of APFL with adaptive alpha, and the global models of FedAvg and SCAFFOLD."
    ),
    data=f"synthetic(γ, γ) {SYNTHETIC}",
    differences=DIFFERENCES
    + RIDGE_NOTE
    + " The paper does not say how it varies diversity; here γ grows from 0 to 2. Clients differ at γ = 0 too, since "
    "each has weights of its own; and γ moves the weights of all classes by the same number, on which no label "
    "depends, so that only the inputs drift apart.",
)
def fig1(quick: bool, progress: ExperimentProgress) -> Outcome:
    """The more clients differ, the more a model of one's own is worth."""
    levels = (0.0, 1.0, 2.0) if quick else (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
    entries = apfl_entries(RATES, WORK, (), 0.5) | _fedavg("global") | _scaffold("global")
    columns = {f"γ = {level:g}": _synthetic(level, quick) for level in levels}
    comparison = compare(columns, entries, seeds=_seeds(quick), budget=_budget(quick), progress=progress)
    palette = style.colours(list(entries))
    panels = [
        style.Panel(
            title,
            [
                style.Curve(
                    n, levels, [comparison.mean(column, n, metric) for column in columns], palette[n], marker="o"
                )
                for n in entries
            ],
            title,
        )
        for metric, title in METRICS.items()
    ]
    figure = style.small_multiples([panels], x_label="γ", log_y=False, legend_outside=True)
    claims = [claim for name in list(entries)[1:] for claim in _diversity_claims(comparison, name)]
    return _outcome(comparison, claims, figure, quick, clients=30 if quick else CLIENTS)


def _diversity_claims(comparison: Comparison, name: str) -> list[Claim]:
    lead = [comparison.mean(column, ADAPTIVE) - comparison.mean(column, name) for column in comparison.columns]
    return [
        Claim(
            f"Where clients differ most, APFL's personal models are more accurate than {name}.",
            f"{lead[-1]:+.2%}",
            lead[-1] > 0,
        ),
        Claim(
            f"The lead over {name} is larger where clients differ most than where they are alike.",
            f"{lead[0]:+.2%} to {lead[-1]:+.2%}",
            lead[-1] > lead[0],
        ),
    ]


@experiment(
    "apfl/fig2",
    paper=PAPER,
    title="APFL, FedAvg and SCAFFOLD on MNIST with logistic regression, by how much clients differ",
    caption=(
        "Training loss and test accuracy, means over 100 clients and over seeds, for APFL's personal models with fixed "
        "and with learned alpha, and the global (dashed) and localized models of FedAvg and SCAFFOLD."
    ),
    data=MNIST,
    differences=DIFFERENCES
    + RIDGE_NOTE
    + " The paper's figure has no learned alpha; here it starts at 0.5, with the paper's stepsize, 0.1 * 0.99^round.",
)
def fig2(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Personalization pays where clients differ, and not where they do not."""
    columns = {name: _mnist(name, quick) for name in PARTITIONS if not quick or "4" not in name}
    entries = apfl_entries(RATES, WORK) | apfl_entries(RATES, LEARNED, (), 0.5)
    entries |= _fedavg("finetuned", "global") | _scaffold("finetuned", "global")
    comparison = compare(columns, entries, seeds=_seeds(quick), budget=_budget(quick), progress=progress)
    claims = [claim for column in columns for claim in _fig2_claims(comparison, column)]
    claims += [_alpha_higher(comparison, first, second) for first, second in pairwise(columns)]
    figure = style.small_multiples(comparison.panels(), x_label="communication rounds", log_y=False)
    return _outcome(comparison, claims, figure, quick, clients=CLIENTS, alpha=ALPHAS)


def _fig2_claims(comparison: Comparison, column: str) -> list[Claim]:
    ours = comparison.best(column, "APFL, α")
    rival = max(
        (comparison.best(column, name) for name in ("FedAvg", "SCAFFOLD")), key=lambda n: comparison.mean(column, n)
    )
    measured = f"{plus_minus(comparison.ends(column, ours), True)} ({ours}) against "
    measured += f"{plus_minus(comparison.ends(column, rival), True)} ({rival})"
    ahead = comparison.mean(column, ours) - comparison.mean(column, rival)
    if column == "IID":
        text = "IID: a model of FedAvg or SCAFFOLD is at least as accurate as every personal model of APFL."
        return [Claim(text, measured, ahead <= 0)]
    losses = [comparison.mean(column, f"APFL, α = {alpha:g}", "train_loss") for alpha in ALPHAS]
    text = f"{column}: APFL's best fixed alpha is more accurate than the global and localized models of both others."
    return [
        Claim(text, measured, ahead > 0),
        Claim(
            f"{column}: the larger alpha, the lower the training loss of the personal models.",
            ", ".join(f"{loss:.4f} at {alpha:g}" for loss, alpha in zip(losses, ALPHAS, strict=True)),
            bool(losses[0] > losses[1] > losses[2]),
        ),
    ]


@experiment(
    "apfl/fig3",
    paper=PAPER,
    title="APFL and localized FedAvg on MNIST with 2 classes a client, by the share of sampled clients",
    caption=(
        "Training loss and test accuracy over all 100 clients when 30, 50 or 70 of them take part in a round: APFL's "
        "personal models with fixed alpha and the localized model of FedAvg."
    ),
    data=MNIST,
    differences=DIFFERENCES + RIDGE_NOTE,
)
def fig3(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Sampling fewer clients costs FedAvg accuracy; APFL stays ahead."""
    shares = (0.3, 0.7) if quick else (0.3, 0.5, 0.7)
    two = "2 classes a client"
    columns = {f"{share:.0%} of the clients": _mnist(two, quick, participation=share) for share in shares}
    entries = apfl_entries(RATES, WORK) | _fedavg("finetuned")
    comparison = compare(columns, entries, seeds=_seeds(quick), budget=_budget(quick), progress=progress)
    rival = "FedAvg, localized"
    best = {column: comparison.best(column, "APFL") for column in columns}
    claims = [
        comparison.beats(
            column,
            best[column],
            rival,
            say=f"{column}: APFL's best fixed alpha ({best[column][6:]}) is more accurate than {rival}.",
        )
        for column in columns
    ]
    ordered = [comparison.mean(column, rival) for column in columns]
    claims.append(
        Claim(
            "The fewer clients are sampled, the less accurate localized FedAvg is.",
            ", ".join(f"{value:.2%} with {column}" for value, column in zip(ordered, columns, strict=True)),
            all(a < b for a, b in pairwise(ordered)),
        )
    )
    figure = style.small_multiples(comparison.panels(), x_label="communication rounds", log_y=False)
    return _outcome(comparison, claims, figure, quick, clients=CLIENTS, alpha=ALPHAS)


@experiment(
    "apfl/fig4",
    paper=PAPER,
    title="APFL with adaptive alpha and localized FedAvg on synthetic data, by how much clients differ",
    caption=(
        "Training loss and test accuracy, means over 100 clients and over seeds, on IID data and on synthetic(0, 0), "
        "(0.5, 0.5) and (1, 1): APFL with alpha learned from 0.01, and the localized model of FedAvg."
    ),
    data=f"synthetic(γ, β) {SYNTHETIC} IID: all clients share one law.",
    differences=DIFFERENCES
    + RIDGE_NOTE
    + " alpha takes its step at the first local step of a round: at every step it falls to 0 from so small a start, as "
    "the client's copy of the global model outruns its own. Its stepsize stays the paper's, 0.1 * 0.99^round, so that "
    "its ends can be compared. The IID column is not in the paper, which calls synthetic(0, 0) IID; but that law draws "
    "every client its own weights, and only their means agree. Nor do the clients of synthetic(γ, β) differ more in "
    "their labels as γ grows: it moves the weights of all classes by the same number, on which no label depends.",
)
def fig4(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Learned mixing weights end higher where clients differ more."""
    levels = (0.0, 1.0) if quick else (0.0, 0.5, 1.0)
    columns = {"IID": _synthetic(0.0, quick, iid=True)}
    columns |= {f"synthetic({level:g}, {level:g})": _synthetic(level, quick) for level in levels}
    entries = apfl_entries(RATES, LEARNED, (), 0.01) | _fedavg("finetuned")
    comparison = compare(columns, entries, seeds=_seeds(quick), budget=_budget(quick), progress=progress)
    figure = style.small_multiples(comparison.panels(), x_label="communication rounds", log_y=False)
    more = {"clients": 30 if quick else CLIENTS, "alpha at the start": 0.01}
    return _outcome(comparison, _fig4_claims(comparison), figure, quick, **more)


def _fig4_claims(comparison: Comparison) -> list[Claim]:
    claims = [
        comparison.beats(column, ADAPTIVE, "FedAvg, localized", metric)
        for column in comparison.columns
        if column != "IID"
        for metric in METRICS
    ]
    other, *synthetic = comparison.columns
    claims += [_alpha_higher(comparison, column, other) for column in synthetic]
    shares = [comparison.share(column, ADAPTIVE) for column in synthetic]
    claims.append(
        Claim(
            f"alpha rises from {synthetic[0]} to {synthetic[-1]}.",
            ", ".join(map(plus_minus, shares)),
            all(np.mean(a) < np.mean(b) for a, b in pairwise(shares)),
        )
    )
    return claims


def _alpha_higher(comparison: Comparison, first: str, second: str) -> Claim:
    ours, theirs = comparison.share(first, ADAPTIVE), comparison.share(second, ADAPTIVE)
    return Claim(
        f"The learned alpha ends higher with {first} than with {second}.",
        against(ours, theirs),
        bool(np.mean(ours) > np.mean(theirs)),
    )
