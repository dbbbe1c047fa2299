"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning. Its convex figures and its table on MNIST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from polyfed.engine.measure import FineTune
from polyfed.papers import held_out, style
from polyfed.papers.base import Claim, Outcome, Progress, experiment
from polyfed.papers.held_out import Curve, Run, final, mean_curve, options, spread
from polyfed.schedules import Decay

PAPER = "Y. Deng, M. M. Kamani, M. Mahdavi, *Adaptive Personalized Federated Learning*, Section 6."
CLIENTS, STEPS, BATCH, RIDGE, SEEDS, ROUNDS = 100, 10, 20, 1e-4, 5, 100
LR = Decay(0.1, 0.99)
ALPHAS = (0.25, 0.5, 0.75)
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
    "Accuracy is on test rows that nobody trained on or chose anything by, over all clients, also those that were not "
    "sampled; the paper reports validation rows of the clients that are online. The stepsize decays by 1% a round "
    "(the text says iteration). The ridge is 1e-4, which the paper does not give. Localized means 10 steps of SGD from "
    "the global model on the client's training rows."
)
Found = dict[tuple[str, str], list[Curve]]
"""The curves of (column of the figure, method), one for each seed."""


def finetune(steps: int = STEPS) -> FineTune:
    return FineTune(steps=steps, lr=0.05, batch=BATCH)


def _methods(alphas: Sequence[float], steps: int = STEPS, scaffold: bool = True) -> dict[str, tuple[str, Any]]:
    """By label: the algorithm and its options; the paper's stepsizes."""
    work = {"local_steps": steps, "batch": BATCH}
    found = {f"APFL, α = {alpha:g}": ("apfl", options(alpha=alpha, adaptive="off", lr=LR, **work)) for alpha in alphas}
    found["FedAvg"] = ("fedavg", options(lr=LR, weighting="uniform", **work))
    if scaffold:
        found["SCAFFOLD"] = ("scaffold", options(lr=Decay(0.05, 0.95), **work))
    return found


def _collect(
    columns: Mapping[str, dict[str, Any]], methods: dict[str, tuple[str, Any]], seeds: int, progress: Progress
) -> tuple[Found, dict[str, dict[Run, Curve]]]:
    """Every method on every column of the figure, with every seed."""
    todo = {
        (column, label): [Run(method=name, options=given, seed=seed, **settings) for seed in range(seeds)]
        for column, settings in columns.items()
        for label, (name, given) in methods.items()
    }
    curves = held_out.trace_all([run for group in todo.values() for run in group], progress)
    by_label: dict[str, dict[Run, Curve]] = {label: {} for label in methods}
    for (_, label), group in todo.items():
        by_label[label] |= {run: curves[run] for run in group}
    return {key: [curves[run] for run in group] for key, group in todo.items()}, by_label


def _lines(found: Found, column: str, metric: str, localized_only: bool = False) -> list[style.Curve]:
    """The personal model of APFL; of the others the localized one (solid) and the global one (dashed)."""
    labels = [label for at, label in found if at == column]
    palette = style.colours(labels)
    lines = []
    for label in labels:
        curves = found[column, label]
        if label.startswith("APFL"):
            x, y = mean_curve(curves, f"personal_{metric}")
            lines.append(style.Curve(label, x[1:], y[1:], palette[label]))
            continue
        x, y = mean_curve(curves, f"finetuned_{metric}")
        lines.append(style.Curve(f"{label}, localized", x[1:], y[1:], palette[label]))
        if not localized_only:
            x, y = mean_curve(curves, f"global_{metric}")
            lines.append(style.Curve(f"{label}, global", x[1:], y[1:], palette[label], style.BASELINE))
    return lines


def _figure(found: Found, columns: Sequence[str], localized_only: bool = False) -> Any:
    panels = [
        [style.Panel(column, _lines(found, column, metric, localized_only), label) for column in columns]
        for metric, label in (("train_loss", "training loss"), ("test_accuracy", "test accuracy"))
    ]
    return style.small_multiples(panels, x_label="communication rounds", log_y=False)


def _settings(**more: Any) -> dict[str, Any]:
    return {"clients": CLIENTS, "tau": STEPS, "batch": BATCH, "stepsize": "0.1 * 0.99^round", **more}


def _best(found: Found, column: str) -> tuple[str, np.ndarray]:
    """The fixed alpha with the best accuracy in the mean over seeds."""
    apfl = {
        label: final(c, "personal_test_accuracy") for (at, label), c in found.items() if at == column and "α" in label
    }
    label = max(apfl, key=lambda name: float(np.mean(apfl[name])))
    return label, apfl[label]


@experiment(
    "apfl/fig2",
    paper=PAPER,
    title="APFL, FedAvg and SCAFFOLD on MNIST with logistic regression, by how much clients differ",
    caption=(
        "Training loss and test accuracy, means over 100 clients and over seeds, for APFL's personal models with fixed "
        "alpha, and the global (dashed) and localized models of FedAvg and SCAFFOLD."
    ),
    data=MNIST,
    differences=DIFFERENCES,
)
def fig2(quick: bool, progress: Progress) -> Outcome:
    """Personalization pays where clients differ, and not where they do not."""
    columns = {
        name: _mnist_run(given, rounds=15 if quick else ROUNDS)
        for name, given in PARTITIONS.items()
        if not quick or "4" not in name
    }
    found, by_label = _collect(columns, _methods(ALPHAS), 1 if quick else SEEDS, progress)
    claims = [claim for column in columns for claim in _fig2_claims(found, column)]
    return Outcome(
        rows=held_out.long_rows(by_label),
        claims=claims,
        figure=_figure(found, list(columns)),
        settings=_settings(ridge=RIDGE, alpha=ALPHAS, SCAFFOLD="0.05 * 0.95^round", seeds=1 if quick else SEEDS),
    )


def _mnist_run(given: Any, rounds: int, model: str = "linear", l2: float = RIDGE, steps: int = STEPS) -> dict[str, Any]:
    return {
        "source": "mnist",
        "data": (*given, ("clients", CLIENTS)),
        "model": model,
        "l2": l2,
        "rounds": rounds,
        "finetune": finetune(steps),
        "every": 5,
    }


def _fig2_claims(found: Found, column: str) -> list[Claim]:
    label, ours = _best(found, column)
    others = {
        f"{name} {kind}": final(found[column, name], f"{column_of}_test_accuracy")
        for name in ("FedAvg", "SCAFFOLD")
        for kind, column_of in (("global", "global"), ("localized", "finetuned"))
    }
    rival = max(others, key=lambda name: float(np.mean(others[name])))
    measured = f"{spread(ours, True)} ({label}) against {spread(others[rival], True)} ({rival})"
    if column == "IID":
        text = "IID: a model of FedAvg or SCAFFOLD is at least as accurate as every personal model of APFL."
        return [Claim(text, measured, bool(np.mean(others[rival]) >= np.mean(ours)))]
    losses = [final(found[column, f"APFL, α = {a:g}"], "personal_train_loss").mean() for a in ALPHAS]
    text = f"{column}: APFL's best fixed alpha is more accurate than the global and localized models of both others."
    return [
        Claim(text, measured, bool(np.mean(ours) > np.mean(others[rival]))),
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
    differences=DIFFERENCES,
)
def fig3(quick: bool, progress: Progress) -> Outcome:
    """Sampling fewer clients costs FedAvg accuracy; APFL stays ahead."""
    shares = (0.3, 0.7) if quick else (0.3, 0.5, 0.7)
    settings = _mnist_run(PARTITIONS["2 classes a client"], rounds=15 if quick else ROUNDS)
    columns = {f"{share:.0%} of the clients": settings | {"participation": share} for share in shares}
    found, by_label = _collect(columns, _methods(ALPHAS, scaffold=False), 1 if quick else SEEDS, progress)
    claims = []
    for column in columns:
        label, ours = _best(found, column)
        theirs = final(found[column, "FedAvg"], "finetuned_test_accuracy")
        claims.append(
            Claim(
                f"{column}: APFL's best fixed alpha is more accurate than localized FedAvg.",
                f"{spread(ours, True)} ({label}) against {spread(theirs, True)}",
                bool(np.mean(ours) > np.mean(theirs)),
            )
        )
    ordered = [final(found[column, "FedAvg"], "finetuned_test_accuracy").mean() for column in columns]
    claims.append(
        Claim(
            "The fewer clients are sampled, the less accurate localized FedAvg is.",
            ", ".join(f"{value:.2%} with {column}" for value, column in zip(ordered, columns, strict=True)),
            all(a < b for a, b in pairwise(ordered)),
        )
    )
    return Outcome(
        rows=held_out.long_rows(by_label),
        claims=claims,
        figure=_figure(found, list(columns), localized_only=True),
        settings=_settings(ridge=RIDGE, alpha=ALPHAS, seeds=1 if quick else SEEDS),
    )


@experiment(
    "apfl/fig4",
    paper=PAPER,
    title="APFL with adaptive alpha and localized FedAvg on synthetic data, by how much clients differ",
    caption=(
        "Training loss and test accuracy, means over 100 clients and over seeds, on synthetic(0, 0), (0.5, 0.5) and "
        "(1, 1): APFL with alpha learned from 0.01, and the localized model of FedAvg."
    ),
    data="synthetic(γ, β) of Li et al. with 100 clients, 60 features, 10 classes, sizes log-normal, at most 2,000.",
    differences=DIFFERENCES
    + " alpha takes its step at the first local step of a round: at every step it falls to 0 from "
    "so small a start, as the client's copy of the global model outruns its own.",
)
def fig4(quick: bool, progress: Progress) -> Outcome:
    """Learned mixing weights end higher where clients differ more."""
    levels = (0.0, 1.0) if quick else (0.0, 0.5, 1.0)
    columns = {
        f"synthetic({level:g}, {level:g})": {
            "source": "synthetic",
            "data": options(alpha=level, beta=level, clients=30 if quick else CLIENTS, max_size=2000),
            "model": "linear",
            "l2": RIDGE,
            "rounds": 30 if quick else ROUNDS,
            "finetune": finetune(),
            "every": 5,
        }
        for level in levels
    }
    work = {"local_steps": STEPS, "batch": BATCH, "lr": LR}
    methods = {
        "APFL, adaptive α": ("apfl", options(alpha=0.01, adaptive="round", **work)),
        "FedAvg": ("fedavg", options(weighting="uniform", **work)),
    }
    found, by_label = _collect(columns, methods, 1 if quick else SEEDS, progress)
    return Outcome(
        rows=held_out.long_rows(by_label),
        claims=_fig4_claims(found, list(columns)),
        figure=_figure(found, list(columns), localized_only=True),
        settings=_settings(ridge=RIDGE) | {"alpha at the start": 0.01, "seeds": 1 if quick else SEEDS},
        notes=[
            "alpha at the end, mean over clients and seeds: "
            + ", ".join(f"{_share(found, column):.3f} on {column}" for column in columns)
            + "."
        ],
    )


def _share(found: Found, column: str) -> float:
    return float(np.mean([np.mean(c.own_share) for c in found[column, "APFL, adaptive α"] if c.own_share is not None]))


def _fig4_claims(found: Found, columns: Sequence[str]) -> list[Claim]:
    claims = []
    for column in columns:
        for metric, better, what in (
            ("train_loss", np.less, "a lower training loss"),
            ("test_accuracy", np.greater, "a higher accuracy"),
        ):
            ours = final(found[column, "APFL, adaptive α"], f"personal_{metric}")
            theirs = final(found[column, "FedAvg"], f"finetuned_{metric}")
            percent = metric == "test_accuracy"
            claims.append(
                Claim(
                    f"{column}: APFL with adaptive alpha has {what} than localized FedAvg.",
                    f"{spread(ours, percent)} against {spread(theirs, percent)}",
                    bool(better(np.mean(ours), np.mean(theirs))),
                )
            )
    shares = [_share(found, column) for column in columns]
    claims.append(
        Claim(
            "alpha ends higher where clients differ more.",
            ", ".join(f"{share:.3f} on {column}" for share, column in zip(shares, columns, strict=True)),
            all(a < b for a, b in pairwise(shares)),
        )
    )
    return claims
