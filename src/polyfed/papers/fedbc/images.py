"""FedBC's nets on CIFAR-10 (Tables 2, 3 and 6) and MNIST (Tables 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from polyfed.data.power_law import EXPONENTS, fedbc_classes
from polyfed.papers.fedbc.contenders import GLOBAL, LEAKING, LOCAL, Contender, FedbcTask
from polyfed.papers.fedbc.paper import (
    AVERAGES,
    BOTH,
    NETS_PAPER,
    RIVALS,
    UNIFORM,
    VARIANCE,
    final_rows,
    nets_effort,
    rival_words,
)
from polyfed.papers.fedbc.tuned_runs import Recorded, accuracy, collect, ends
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, ExperimentProgress, Outcome, experiment
from polyfed.papers.shared.held_out import options, plus_minus

CLASSES = (1, 2, 3)
IMAGES = (
    "{name}, all images shared out over 20 clients whose sizes follow a geometric law with the exponent, and whose "
    "numbers of classes are those of Table 4; 20% of each client's rows are for test and 10% for validation; 10 "
    "clients take part in a round."
)
DIFFERENCES = (
    "Every method is tuned by validation rows with the same number of candidates, once per table, at C = 2 and "
    "exponent 1.3, and the choice is used in all its cells. Batches have 50 rows. There are {rounds} rounds; the paper "
    "gives no number. Figures are of the last round. Local steps are plain SGD (the published code has momentum 0.5)."
)
SHORT = {
    "cifar10": " This seems to be less training than the paper's: accuracies in its Table 6 (E = 1) are 45% to 61%.",
}
LOCALLY = (
    " FedAvg with a step of fine-tuning is added, with uniform weights and by size. Adapted models take their step on "
    "training rows. The paper's protocol, a step on a batch of test rows, leaks test labels: a note gives its figures, "
    'no claim uses them. Per-FedBC deploys the global model after that step, as in Algorithm 3; its "own models" are '
    "the clients' x_i after the step, which a table of local models may mean."
)
ALSO = (
    "The same runs' global models on all test rows. The paper has those of Per-FedAvg and pFedMe in Table 2; here they "
    "are tuned for what clients deploy:"
)
SERVED = {label: it._replace(judged="global") for label, it in LOCAL.items() if it.algorithm != "local"}
"""The methods of Table 3 that have a global model, judged by it."""
ABSENT = ("FedAvg, fine-tuned", "FedAvg by size, fine-tuned", "Alone")
"""The rivals of FedBC's local models that the paper does not have."""
ROUNDS = {"mnist": 50, "cifar10": 20}
"""The paper does not say how many."""
NETS = {"mnist": "mlp", "cifar10": "lenet"}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
Cells = Mapping[tuple[int, float], FedbcTask]
"""The tasks of a table, by (C, exponent)."""


def _words(dataset: str, more: str = "") -> dict[str, str]:
    """What a page says of the data and of the differences from the paper."""
    differences = DIFFERENCES.format(rounds=ROUNDS[dataset]) + SHORT.get(dataset, "") + more
    return {"data": IMAGES.format(name=NAMES[dataset]), "differences": differences}


def images(dataset: str, C: int, exponent: float, epochs: int, quick: bool) -> FedbcTask:
    classes = tuple(fedbc_classes(dataset, C, exponent))
    law = {"partition": "power_law", "exponent": exponent, "classes": classes, "clients": 20}
    given = options(**law, test=0.2, validation=0.1, every=5 if quick else 1)
    if quick:
        return FedbcTask(dataset, given, NETS[dataset], min(epochs, 2), rounds=2, every=2, batch=200, cohort=3)
    rounds = ROUNDS[dataset]
    return FedbcTask(dataset, given, NETS[dataset], epochs, rounds, every=rounds, batch=50)


def cells(dataset: str, epochs: int, quick: bool) -> Cells:
    wanted = [(2, 1.3)] if quick else [(C, exponent) for C in CLASSES for exponent in EXPONENTS]
    return {(C, exponent): images(dataset, C, exponent, epochs, quick) for C, exponent in wanted}


def _images_table(name: str, number: str, dataset: str, epochs: int) -> None:
    """Tables 2, 6, 7 and 8: the global model's accuracy, by C and exponent."""
    shown = NAMES[dataset]

    @experiment(
        name,
        paper=NETS_PAPER,
        title=f"Global accuracy on {shown} with power-law clients, E = {epochs}",
        caption=(
            f"Accuracy of the global model on all test rows against the exponent ({number}), and its variance over "
            "clients, a column for each number C of classes that most clients have; means over seeds."
        ),
        **_words(dataset, BOTH),
    )
    def run(quick: bool, progress: ExperimentProgress) -> Outcome:
        tasks = cells(dataset, epochs, quick)
        recorded, settings = collect(
            list(tasks.values()), GLOBAL, progress, tuned_on=tasks[2, 1.3], judged="global", **nets_effort(quick)
        )
        return _outcome(recorded, tasks, GLOBAL, settings, _global_claims(recorded, tasks))


def _outcome(
    recorded: Recorded,
    tasks: Cells,
    contenders: Mapping[str, Contender],
    settings: dict[str, object],
    claims: list[Claim],
) -> Outcome:
    task = next(iter(tasks.values()))
    facts: dict[str, object] = {
        "clients": 20,
        "clients per round": task.cohort,
        "E": task.epochs,
        "batch": task.batch,
        "rounds": task.rounds,
    }
    return Outcome(
        rows=[
            {"C": C, "exponent": exponent, **row}
            for (C, exponent), cell in tasks.items()
            for row in final_rows({key: records for key, records in recorded.items() if key[0] == cell})
        ],
        claims=claims,
        figure=_panels(recorded, tasks, contenders),
        settings=facts | settings,
        notes=[_table(recorded, tasks, contenders)],
    )


def _panels(recorded: Recorded, tasks: Cells, contenders: Mapping[str, Contender]) -> Figure:
    looks = style.looks({label: it.algorithm for label, it in contenders.items()})
    counts = list(dict.fromkeys(C for C, _ in tasks))
    rows = []
    for title, column in (("test accuracy", None), ("variance over clients", "variance")):
        row = []
        for C in counts:
            mine = {exponent: task for (c, exponent), task in tasks.items() if c == C}
            lines = []
            for n, (colour, line) in looks.items():
                name = accuracy(n, contenders)
                name = name if column is None else f"{name.rpartition('_')[0]}_{column}"
                values = [float(np.mean(ends(recorded[task, n], name))) for task in mine.values()]
                lines.append(style.Curve(n, list(mine), values, colour, line, marker="o"))
            row.append(style.Panel(f"C = {C}", lines, title))
        rows.append(row)
    return style.small_multiples(rows, x_label="power-law exponent", log_y=False)


def _table(recorded: Recorded, tasks: Cells, contenders: Mapping[str, Contender]) -> str:
    """As the paper prints it."""
    heads = [f"C = {C}, {exponent}" for C, exponent in tasks]
    lines = [f"| method | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for n in contenders:
        values = [plus_minus(ends(recorded[task, n], accuracy(n, contenders)), True) for task in tasks.values()]
        lines.append(f"| {n} | {' | '.join(values)} |")
    return "\n".join(lines)


def _global_claims(recorded: Recorded, tasks: Cells) -> list[Claim]:
    """FedBC against each rival: in how many cells it is ahead, and by how much in the mean."""
    claims = []
    for rival in (*RIVALS, UNIFORM):
        leads = [_lead(recorded, task, "FedBC", rival, GLOBAL) for task in tasks.values()]
        text = f"FedBC's global model is more accurate than that of {rival_words(rival)} in most cells."
        claims.append(_most(text, leads))
    for rival in AVERAGES:
        gaps = [
            float(np.mean(ends(recorded[task, rival], VARIANCE)) - np.mean(ends(recorded[task, "FedBC"], VARIANCE)))
            for task in tasks.values()
        ]
        claims.append(
            Claim(
                f"The accuracy of FedBC's global model varies less over clients than that of {rival} in most cells.",
                f"{_count(gaps)} cells, a variance lower by {np.mean(gaps):.4f} in the mean",
                sum(gap > 0 for gap in gaps) > len(gaps) / 2,
            )
        )
    return claims


def _count(leads: Sequence[float]) -> str:
    return f"{sum(lead > 0 for lead in leads)} of {len(leads)}"


def _lead(recorded: Recorded, task: FedbcTask, ours: str, theirs: str, contenders: Mapping[str, Contender]) -> float:
    means = [np.mean(ends(recorded[task, n], accuracy(n, contenders))) for n in (ours, theirs)]
    return float(means[0] - means[1])


@experiment(
    "fedbc/table3",
    paper=NETS_PAPER,
    title="Local accuracy on CIFAR-10 with power-law clients, E = 5",
    caption=(
        "Mean over clients of the accuracy of what each deploys, on its own test rows, against the exponent (Table 3), "
        "and the variance over clients, a column for each C; means over seeds."
    ),
    **_words("cifar10", LOCALLY),
)
def table3(quick: bool, progress: ExperimentProgress) -> Outcome:
    """Own models are better than the global one, and adapted ones better than FedBC's."""
    tasks = cells("cifar10", 5, quick)
    recorded, settings = collect(
        list(tasks.values()), LOCAL, progress, tuned_on=tasks[2, 1.3], judged="personal", **nets_effort(quick)
    )
    adapted = {label: it._replace(judged=LEAKING) for label, it in LOCAL.items() if it.adapts}
    outcome = _outcome(recorded, tasks, LOCAL, settings, _local_claims(recorded, tasks))
    outcome.notes += [
        "Adapted on a batch of test rows, as in the paper; test labels leak:",
        _table(recorded, tasks, adapted),
        ALSO,
        _table(recorded, tasks, SERVED),
    ]
    return outcome


def _local_claims(recorded: Recorded, tasks: Cells) -> list[Claim]:
    own = [
        float(
            np.mean(
                ends(recorded[task, "FedBC"], "personal_test_mean") - ends(recorded[task, "FedBC"], "global_test_mean")
            )
        )
        for task in tasks.values()
    ]
    claims = [
        _most("FedBC's local models are better than its global model on the clients' own rows in most cells.", own)
    ]
    for ours, theirs in (
        ("FedBC-FineTune", "FedBC"),
        ("Per-FedBC", "FedBC"),
        ("Per-FedBC", "Per-FedAvg"),
        ("Per-FedBC, own models", "FedBC"),
        ("Per-FedBC, own models", "Per-FedAvg"),
        ("FedBC", "pFedMe"),
        *(("FedBC", rival) for rival in ABSENT),
    ):
        leads = [_lead(recorded, task, ours, theirs, LOCAL) for task in tasks.values()]
        note = " (not in the paper)" if theirs in ABSENT else ""
        claims.append(_most(f"{ours} is more accurate locally than {theirs}{note} in most cells.", leads))
    fewest = min(C for C, _ in tasks)
    for rival in ("Per-FedAvg", "pFedMe"):
        leads = [_lead(recorded, task, "FedBC", rival, SERVED) for (C, _), task in tasks.items() if fewest == C]
        text = f"C = {fewest}: FedBC's global model is more accurate than that of {rival} in most cells (Table 2)."
        claims.append(_most(text, leads))
    return claims


def _most(text: str, leads: Sequence[float]) -> Claim:
    """A claim about the cells of a table that holds if the lead is positive in more than half of them."""
    measured = f"{_count(leads)} cells, {100 * np.mean(leads):+.2f} points in the mean"
    return Claim(text, measured, sum(lead > 0 for lead in leads) > len(leads) / 2)


for _name, _number, _dataset, _epochs in (
    ("fedbc/table2", "Table 2", "cifar10", 5),
    ("fedbc/table6", "Table 6", "cifar10", 1),
    ("fedbc/table7", "Table 7", "mnist", 1),
    ("fedbc/table8", "Table 8", "mnist", 5),
):
    _images_table(_name, _number, _dataset, _epochs)
