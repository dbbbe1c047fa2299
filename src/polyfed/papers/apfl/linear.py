"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning. Its figures with linear models (2 to 4)."""

from __future__ import annotations

from itertools import pairwise

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
from polyfed.papers.shared import claims, style
from polyfed.papers.shared.claims import Claim, better, every, similar
from polyfed.papers.shared.comparison import METRICS, Compared, Comparison, compare
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import Options, against, options, plus_minus
from polyfed.papers.shared.tuned import Entry, Setting

WORK = {"local_steps": STEPS, "batch": BATCH}
LEARNED = WORK | {"alpha_lr": PUBLISHED_LR}
"""alpha keeps the paper's stepsize, so that its ends can be compared."""
SYNTHETIC = (
    "of Li et al. with 100 clients, 60 features, 10 classes, log-normal sizes of at most 2,000 rows; a tenth of each "
    "client's rows are for validation, a fifth for test."
)


def linear_setting(source: str, data: Options, rounds: int, participation: float = 1.0) -> Setting:
    return Setting(source, data, "linear", RIDGE, rounds, STEPS, BATCH, RATES, participation)


def _mnist(partition: str, quick: bool, participation: float = 1.0) -> Setting:
    data = (*PARTITIONS[partition], ("clients", CLIENTS))
    return linear_setting("mnist", data, 15 if quick else ROUNDS, participation)


def _synthetic(level: float, quick: bool, **more: bool) -> Setting:
    data = options(alpha=level, beta=level, clients=30 if quick else CLIENTS, max_size=2000, **more)
    return linear_setting("synthetic", data, 30 if quick else ROUNDS)


def fedavg_entries(*judged: str) -> dict[str, Entry]:
    return shared_entries("FedAvg", "fedavg", decays(RATES), PUBLISHED_LR, WORK, judged)


def scaffold_entries(*judged: str) -> dict[str, Entry]:
    return shared_entries("SCAFFOLD", "scaffold", decays(RATES), PUBLISHED_LR, WORK, judged)


def measured(comparison: Comparison, quick: bool, **more: object) -> Measured:
    counts = effort(quick)
    budget = counts["budget"]
    settings = {"tau": STEPS, "batch": BATCH, "ridge": RIDGE, "seeds": counts["seeds"], "candidates": budget, **more}
    return Measured(comparison.rows, settings, tuning_notes(comparison, budget, RATES))


def effort(quick: bool) -> dict[str, int]:
    """How many seeds, and how many candidates for each method."""
    return {"seeds": 1, "budget": 0} if quick else {"seeds": SEEDS, "budget": len(RATES)}


def draw_curves(rows: list[Row]) -> Figure:
    return style.small_multiples(Compared(rows).panels(), x_label="communication rounds", log_y=False)


ONE_STEPSIZE = ", one stepsize"
"""Tuning gives each alpha a stepsize of its own; losses are compared at the paper's, the same for all."""


def _draw_fig2(rows: list[Row]) -> Figure:
    return draw_curves([row for row in rows if not row["column"].endswith(ONE_STEPSIZE)])


def judge_fig2(rows: list[Row]) -> list[Claim]:
    compared = Compared(rows)
    columns = [column for column in compared.columns if not column.endswith(ONE_STEPSIZE)]
    made = [claim for column in columns for claim in _fig2_claims(compared, column)]
    return made + [_alpha_higher(compared, first, second) for first, second in pairwise(columns)]


def _fig2_claims(compared: Compared, column: str) -> list[Claim]:
    rivals = [label for label in compared.labels if not label.startswith("APFL")]
    if column == "IID":
        rival = max(rivals, key=lambda name: compared.mean(column, name, "validation_accuracy"))
        personal = [label for label in compared.labels if label.startswith("APFL, α")]
        text = "IID: the best model of FedAvg or SCAFFOLD (by validation rows) is more accurate than every personal "
        text += "model of APFL with a fixed alpha."
        return [compared.beats_all(column, rival, personal, text)]
    ours = compared.best(column, "APFL, α")
    fixed = [f"APFL, α = {alpha:g}" for alpha in ALPHAS]
    alike = column + ONE_STEPSIZE
    losses = {label: compared.ends(alike, label, "train_loss") for label in fixed}
    text = f"{column}: APFL's best fixed alpha by validation rows ({ours[6:]}) is more accurate than the global and "
    text += "localized models of both others."
    return [
        compared.beats_all(column, ours, rivals, text),
        every(
            f"{alike}: the larger alpha, the lower the training loss of the personal models.",
            {f"{a[6:]} against {b[6:]}": losses[a] - losses[b] for a, b in pairwise(fixed)},
            compared.words(alike, fixed, "train_loss"),
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
    + " The paper's figure has no learned alpha; here it starts at 0.5, with the paper's stepsize, 0.1 * 0.99^round. "
    "Training losses of several alphas are compared at that stepsize, too, the same for all.",
    judge=judge_fig2,
    draw=_draw_fig2,
)
def fig2(quick: bool, progress: ExperimentProgress) -> Measured:
    """Personalization pays where clients differ, and not where they do not."""
    columns = {name: _mnist(name, quick) for name in PARTITIONS if not quick or "4" not in name}
    entries = apfl_entries(RATES, WORK) | apfl_entries(RATES, LEARNED, (), 0.5)
    entries |= fedavg_entries("finetuned", "global") | scaffold_entries("finetuned", "global")
    comparison = compare(columns, entries, **effort(quick), progress=progress)
    outcome = measured(comparison, quick, clients=CLIENTS, alpha=ALPHAS)
    outcome.rows += one_stepsize(quick, progress)
    return outcome


def one_stepsize(quick: bool, progress: ExperimentProgress) -> list[Row]:
    """Where clients differ, APFL with the fixed alphas at the paper's stepsize."""
    columns = {
        name + ONE_STEPSIZE: _mnist(name, quick)
        for name in PARTITIONS
        if name != "IID" and (not quick or "4" not in name)
    }
    seeds = effort(quick)["seeds"]
    return compare(columns, apfl_entries((), WORK), seeds=seeds, budget=0, progress=progress).rows


LOCALIZED = "FedAvg, localized"


def judge_fig3(rows: list[Row]) -> list[Claim]:
    compared, made = Compared(rows), []
    for column in compared.columns:
        best = compared.best(column, "APFL")
        what = f"{column}: APFL's best fixed alpha by validation rows ({best[6:]})"
        made += [
            compared.beats(column, best, LOCALIZED, say=f"{what} is more accurate than {LOCALIZED}."),
            compared.beats(column, best, LOCALIZED, "train_loss", f"{what} has a lower training loss."),
        ]
    values = {column: compared.ends(column, LOCALIZED) for column in compared.columns}
    made.append(
        every(
            "The fewer clients are sampled, the less accurate localized FedAvg is.",
            {f"{b} against {a}": values[b] - values[a] for a, b in pairwise(compared.columns)},
            ", ".join(f"{plus_minus(v, True)} with {column}" for column, v in values.items()),
            claims.POINTS,
        )
    )
    return made


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
    judge=judge_fig3,
    draw=draw_curves,
)
def fig3(quick: bool, progress: ExperimentProgress) -> Measured:
    """Sampling fewer clients costs FedAvg accuracy; APFL stays ahead."""
    shares = (0.3, 0.7) if quick else (0.3, 0.5, 0.7)
    two = "2 classes a client"
    columns = {f"{share:.0%} of the clients": _mnist(two, quick, participation=share) for share in shares}
    entries = apfl_entries(RATES, WORK) | fedavg_entries("finetuned")
    comparison = compare(columns, entries, **effort(quick), progress=progress)
    return measured(comparison, quick, clients=CLIENTS, alpha=ALPHAS)


ALMOST = 0.02
"""Accuracies that differ by less are almost the same."""


def judge_fig4(rows: list[Row]) -> list[Claim]:
    """Better than localized FedAvg on every dataset, and equally good on all; how the learned alpha ends."""
    compared = Compared(rows)
    made = [
        compared.beats(column, ADAPTIVE, LOCALIZED, metric)
        for column in compared.columns
        if column != "IID"
        for metric in METRICS
    ]
    other, *synthetic = compared.columns
    first, last = (compared.ends(column, ADAPTIVE) for column in (synthetic[0], synthetic[-1]))
    text = f"APFL is almost as accurate on {synthetic[-1]} as on {synthetic[0]} (within 2 points)."
    made.append(similar(text, last, first, ALMOST, against(last, first, True), claims.POINTS))
    made += [_alpha_higher(compared, column, other) for column in synthetic]
    shares = {column: compared.share(column, ADAPTIVE) for column in synthetic}
    made.append(
        every(
            f"The learned alpha rises from {synthetic[0]} to {synthetic[-1]} (not in the paper).",
            {f"{b} against {a}": shares[b] - shares[a] for a, b in pairwise(synthetic)},
            ", ".join(map(plus_minus, shares.values())),
        )
    )
    return made


def _alpha_higher(compared: Compared, first: str, second: str) -> Claim:
    ours, theirs = compared.share(first, ADAPTIVE), compared.share(second, ADAPTIVE)
    text = f"The learned alpha ends higher with {first} than with {second} (not in the paper)."
    return better(text, ours, theirs, against(ours, theirs))


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
    judge=judge_fig4,
    draw=draw_curves,
)
def fig4(quick: bool, progress: ExperimentProgress) -> Measured:
    """Learned mixing weights end higher where clients differ more."""
    levels = (0.0, 1.0) if quick else (0.0, 0.5, 1.0)
    columns = {"IID": _synthetic(0.0, quick, iid=True)}
    columns |= {f"synthetic({level:g}, {level:g})": _synthetic(level, quick) for level in levels}
    entries = apfl_entries(RATES, LEARNED, (), 0.01) | fedavg_entries("finetuned")
    comparison = compare(columns, entries, **effort(quick), progress=progress)
    return measured(comparison, quick, clients=30 if quick else CLIENTS, **{"alpha at the start": 0.01})
