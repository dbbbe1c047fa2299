"""Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning. Diversity (Fig. 1), writers (Fig. 5), Table 2."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from polyfed.papers import held_out, style
from polyfed.papers.apfl import BATCH, CLIENTS, DIFFERENCES, LR, MNIST, PAPER, PARTITIONS, RIDGE, SEEDS, STEPS, finetune
from polyfed.papers.base import Claim, Outcome, Progress, experiment
from polyfed.papers.held_out import Curve, Run, final, mean_curve, options, spread

WORK = {"local_steps": STEPS, "batch": BATCH, "lr": LR}
TABLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "APFL, α = 0.25": ("apfl", {"alpha": 0.25, "adaptive": "off", "lr": LR}, "personal"),
    "APFL, α = 0.5": ("apfl", {"alpha": 0.5, "adaptive": "off", "lr": LR}, "personal"),
    "APFL, α = 0.75": ("apfl", {"alpha": 0.75, "adaptive": "off", "lr": LR}, "personal"),
    "APFL, adaptive α": ("apfl", {"alpha": 0.5, "adaptive": "round", "lr": LR}, "personal"),
    "FedAvg, global": ("fedavg", {"weighting": "uniform", "lr": LR}, "global"),
    "FedAvg, localized": ("fedavg", {"weighting": "uniform", "lr": LR}, "finetuned"),
    "perFedAvg": ("perfedavg", {"inner_lr": 0.01, "lr": 0.001}, "personal"),
    "pFedMe": ("pfedme", {"penalty": 15.0, "inner_lr": 0.01, "inner_steps": 5, "lr": 0.01}, "personal"),
}
"""By label: the algorithm, its options beside tau and the batch, and which of its models is judged."""
PUBLISHED = {
    "APFL, α = 0.25": 98.07,
    "APFL, α = 0.5": 98.04,
    "APFL, α = 0.75": 97.86,
    "APFL, adaptive α": 98.10,
    "FedAvg, global": 93.81,
    "FedAvg, localized": 97.75,
    "perFedAvg": 97.83,
    "pFedMe": 95.92,
}
"""Validation accuracies of Table 2, in percent."""


@experiment(
    "apfl/fig1",
    paper=PAPER,
    title="One global model and personal models as clients grow apart",
    caption=(
        "Training loss and test accuracy after 100 rounds on synthetic(γ, γ) against γ, means over 100 clients and "
        "over seeds: the personal models of APFL with adaptive alpha, and the global models of FedAvg and SCAFFOLD."
    ),
    data="synthetic(γ, γ) of Li et al. with 100 clients, 60 features, 10 classes, sizes log-normal, at most 2,000.",
    differences=DIFFERENCES + " The paper does not say how it varies diversity; here γ = β grows from 0 to 2.",
)
def fig1(quick: bool, progress: Progress) -> Outcome:
    """The more clients differ, the more a model of one's own is worth."""
    levels = (0.0, 1.0, 2.0) if quick else (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
    seeds = 1 if quick else SEEDS
    methods = {
        "APFL": ("apfl", options(alpha=0.5, adaptive="round", **WORK), "personal"),
        "FedAvg": ("fedavg", options(weighting="uniform", **WORK), "global"),
        "SCAFFOLD": ("scaffold", options(**WORK), "global"),
    }
    todo = {
        (label, level): [_synthetic(name, given, level, seed, quick) for seed in range(seeds)]
        for level in levels
        for label, (name, given, _) in methods.items()
    }
    curves = held_out.trace_all([run for group in todo.values() for run in group], progress)
    ends = {
        (label, metric): [final([curves[run] for run in todo[label, level]], f"{kind}_{metric}") for level in levels]
        for label, (_, _, kind) in methods.items()
        for metric in ("train_loss", "test_accuracy")
    }
    palette = style.colours(list(methods))
    panels = [
        style.Panel(
            title,
            [
                style.Curve(n, levels, [float(np.mean(v)) for v in ends[n, metric]], palette[n], marker="o")
                for n in methods
            ],
            title,
        )
        for metric, title in (("train_loss", "training loss"), ("test_accuracy", "test accuracy"))
    ]
    rows = [
        {"label": label, "metric": metric, "diversity": level, "seed": seed, "value": value}
        for (label, metric), values in ends.items()
        for level, found in zip(levels, values, strict=True)
        for seed, value in enumerate(found)
    ]
    return Outcome(
        rows=rows,
        claims=_fig1_claims(ends, list(methods)),
        figure=style.small_multiples([panels], x_label="γ", log_y=False),
        settings={"clients": CLIENTS, "tau": STEPS, "batch": BATCH, "stepsize": "0.1 * 0.99^round", "seeds": seeds},
    )


def _synthetic(name: str, given: Any, level: float, seed: int, quick: bool) -> Run:
    data = options(alpha=level, beta=level, clients=30 if quick else CLIENTS, max_size=2000)
    rounds = 20 if quick else 100
    return Run("synthetic", data, "linear", RIDGE, name, given, rounds, seed, every=rounds)


def _fig1_claims(ends: dict[tuple[str, str], list[np.ndarray]], names: Sequence[str]) -> list[Claim]:
    lead = {
        name: [
            float(np.mean(ours) - np.mean(theirs))
            for ours, theirs in zip(ends["APFL", "test_accuracy"], ends[name, "test_accuracy"], strict=True)
        ]
        for name in names[1:]
    }
    return [
        claim
        for name, gains in lead.items()
        for claim in (
            Claim(
                f"Where clients differ most, APFL's personal models are more accurate than the global model of {name}.",
                f"{gains[-1]:+.2%}",
                gains[-1] > 0,
            ),
            Claim(
                f"The lead over {name} is larger where clients differ most than where they are alike.",
                f"{gains[0]:+.2%} to {gains[-1]:+.2%}",
                gains[-1] > gains[0],
            ),
        )
    ]


@experiment(
    "apfl/fig5",
    paper=PAPER,
    title="APFL and localized FedAvg on handwriting by writer",
    caption=(
        "Training loss and test accuracy over all writers when a tenth of them take part in a round for one epoch: an "
        "MLP with two hidden layers of 200; APFL with alpha learned from 0.5, and the localized model of FedAvg."
    ),
    data="MNIST by its 539 writers (QMNIST's writer ids): each writer's digits split into training and test rows.",
    differences=DIFFERENCES + " 539 writers of MNIST stand in for 1,000 writers of EMNIST's digits.",
)
def fig5(quick: bool, progress: Progress) -> Outcome:
    """Natural clients: handwriting."""
    rounds, seeds = (20, 1) if quick else (250, SEEDS)
    work = {"local_epochs": 1, "batch": BATCH, "lr": LR}
    methods = {
        "APFL, adaptive α": ("apfl", options(alpha=0.5, adaptive="round", **work), "personal"),
        "FedAvg, localized": ("fedavg", options(weighting="uniform", **work), "finetuned"),
    }
    given = options(clients=60) if quick else ()
    todo = {
        label: [
            Run("mnist_by_writer", given, "mlp", 0.0, name, choice, rounds, seed, 0.1, finetune(), 10)
            for seed in range(seeds)
        ]
        for label, (name, choice, _) in methods.items()
    }
    curves = held_out.trace_all([run for group in todo.values() for run in group], progress)
    found = {label: [curves[run] for run in group] for label, group in todo.items()}
    palette = style.colours(list(methods))
    panels = [
        style.Panel(
            title,
            [
                style.Curve(n, *mean_curve(found[n], f"{kind}_{metric}"), palette[n])
                for n, (_, _, kind) in methods.items()
            ],
            title,
        )
        for metric, title in (("train_loss", "training loss"), ("test_accuracy", "test accuracy"))
    ]
    ours, theirs = (final(found[n], f"{kind}_test_accuracy") for n, (_, _, kind) in methods.items())
    return Outcome(
        rows=held_out.long_rows({label: {run: curves[run] for run in group} for label, group in todo.items()}),
        claims=[
            Claim(
                "APFL with adaptive alpha is more accurate than localized FedAvg.",
                f"{spread(ours, True)} against {spread(theirs, True)}",
                bool(np.mean(ours) > np.mean(theirs)),
            )
        ],
        figure=style.small_multiples([panels], x_label="communication rounds", log_y=False),
        settings={"participation": 0.1, "epochs": 1, "batch": BATCH, "stepsize": "0.1 * 0.99^round", "seeds": seeds},
    )


@experiment(
    "apfl/table2",
    paper=PAPER,
    title="Personalization methods on MNIST with 2 classes a client and an MLP",
    caption=(
        "Test accuracy after 100 rounds, mean and standard deviation over seeds (dots and bars), beside the validation "
        "accuracies that the paper prints (crosses); an MLP with two hidden layers of 200, tau = 20."
    ),
    data=MNIST,
    differences=DIFFERENCES
    + " Stepsizes are the paper's and were not tuned; perFedAvg is its Hessian-free form and adapts on training rows.",
)
def table2(quick: bool, progress: Progress) -> Outcome:
    """APFL above perFedAvg and localized FedAvg, those above pFedMe, that above the global model."""
    rounds, seeds, steps = (10, 1, 5) if quick else (100, SEEDS, 20)
    data = (*PARTITIONS["2 classes a client"], ("clients", 20 if quick else CLIENTS))
    todo = {
        label: [
            Run(
                "mnist",
                data,
                "mlp",
                0.0,
                name,
                options(local_steps=steps, batch=BATCH, **given),
                rounds,
                seed,
                finetune=finetune(steps),
                every=rounds,
            )
            for seed in range(seeds)
        ]
        for label, (name, given, _) in TABLE.items()
    }
    curves = held_out.trace_all([run for group in todo.values() for run in group], progress)
    found = {label: [curves[run] for run in group] for label, group in todo.items()}
    return Outcome(
        rows=[
            {"label": label, "seed": seed, **{k.partition("_")[2]: curve.rows[-1][k] for k in _columns(label)}}
            for label, group in found.items()
            for seed, curve in enumerate(group)
        ],
        claims=_table_claims(found),
        figure=_dots(found),
        settings={"clients": data[-1][1], "tau": steps, "batch": BATCH, "rounds": rounds, "seeds": seeds},
    )


def _columns(label: str) -> tuple[str, str]:
    kind = TABLE[label][2]
    return f"{kind}_train_loss", f"{kind}_test_accuracy"


def _table_claims(found: dict[str, list[Curve]]) -> list[Claim]:
    mean = {label: float(np.mean(final(curves, _columns(label)[1]))) for label, curves in found.items()}
    best = max((label for label in mean if label.startswith("APFL")), key=mean.__getitem__)
    order = [best, "perFedAvg", "FedAvg, localized", "pFedMe", "FedAvg, global"]
    adaptive = final(found["APFL, adaptive α"], "personal_test_accuracy")
    claims = [
        Claim(
            f"{first} is more accurate than {second}.",
            f"{spread(final(found[first], _columns(first)[1]), True)} against "
            f"{spread(final(found[second], _columns(second)[1]), True)}",
            mean[first] > mean[second],
        )
        for first, second in pairwise(order)
    ]
    text = "APFL with adaptive alpha is at least 97.5% accurate."
    return [*claims, Claim(text, spread(adaptive, True), bool(np.mean(adaptive) >= 0.975))]


def _dots(found: dict[str, list[Curve]]) -> Figure:
    """A line per method: ours with its deviation, the paper's beside it."""
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axis = figure.subplots()
        for place, (label, curves) in enumerate(found.items()):
            values = 100 * final(curves, _columns(label)[1])
            error = np.std(values, ddof=1) if len(values) > 1 else 0.0
            axis.errorbar(values.mean(), place, xerr=error, fmt="o", color=style.COLOURS[0], label=_once(place, "here"))
            axis.plot(PUBLISHED[label], place, "x", color=style.COLOURS[1], label=_once(place, "paper"))
        axis.set_yticks(range(len(found)), list(found))
        axis.invert_yaxis()
        axis.set_xlabel("accuracy (%)")
        axis.legend(loc="lower left")
    return figure


def _once(place: int, label: str) -> str:
    return label if place == 0 else "_"
