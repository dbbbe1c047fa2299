"""Bedi and others: FedBC. Nets on CIFAR-10 (Tables 2, 3, 6), MNIST (Tables 7, 8) and Shakespeare (Table 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyfed.data.power_law import EXPONENTS, fedbc_classes
from polyfed.papers.fedbc.runs import COHORT, GLOBAL, LEAKING, LOCAL, Contender, Found, Task, accuracy, collect, ends
from polyfed.papers.fedbc.synthetic import AVERAGES, BOTH, PAPER, RIVALS, VARIANCE, effort, final_rows
from polyfed.papers.shared import style
from polyfed.papers.shared.experiment import Claim, Outcome, Progress, experiment
from polyfed.papers.shared.held_out import options, spread

CLASSES = (1, 2, 3)
IMAGES = (
    "{name}, all images shared out over 20 clients whose sizes follow a geometric law with the exponent, and whose "
    "numbers of classes are those of Table 4; 20% of each client's rows are for test and 10% for validation; 10 "
    "clients take part in a round."
)
DIFFERENCES = (
    "Every method is tuned by validation rows with the same number of candidates, once per table, at C = 2 and "
    "exponent 1.3, and the choice is used in all its cells. Batches have 50 rows; there are {rounds} rounds, the paper "
    "gives no number. Figures are of the last round. Local steps are plain SGD (the published code has momentum 0.5)."
)
SHORT = {
    "cifar10": " This seems to be less training than the paper's: accuracies in its Table 6 (E = 1) are 45% to 61%.",
}
LOCALLY = (
    " FedAvg, which the paper does not have here, is there with a step of fine-tuning: with uniform weights, and by "
    "size. Adapted models take their step on training rows. The paper's protocol, a step on a batch of test rows, "
    "leaks test labels: a note gives its figures, no claim uses them. Per-FedBC gives out the global model after that "
    'step, as Algorithm 3 has it; its "own models" are the clients\' x_i after the step, which a table of local models '
    "may mean."
)
ALSO = (
    "The same runs' global models on all test rows. The paper has those of Per-FedAvg and pFedMe in Table 2; here they "
    "are tuned for what clients deploy:"
)
SERVED = {label: it._replace(judged="global") for label, it in LOCAL.items() if it.algorithm != "local"}
"""The methods of Table 3 that have a global model, judged by it."""
ABSENT = ("FedAvg, fine-tuned", "FedAvg by size, fine-tuned", "Alone")
"""The rivals of FedBC's local models that the paper does not have."""
ROUNDS = {"mnist": 50, "cifar10": 20, "shakespeare": 40}
"""The paper gives none."""
LSTM_RATES = (0.3, 1.0, 2.0, 3.0)
"""Stepsizes up to 0.3 teach the LSTM little more than the commonest characters in so few rounds."""
NETS = {"mnist": "mlp", "cifar10": "lenet"}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def _words(dataset: str, more: str = "") -> dict[str, str]:
    """What a page says of the data and of the differences from the paper."""
    differences = DIFFERENCES.format(rounds=ROUNDS[dataset]) + SHORT.get(dataset, "") + more
    return {"data": IMAGES.format(name=NAMES[dataset]), "differences": differences}


def images(dataset: str, C: int, exponent: float, epochs: int, quick: bool) -> Task:
    classes = tuple(fedbc_classes(dataset, C, exponent))
    law = {"partition": "power_law", "exponent": exponent, "classes": classes, "clients": 20}
    given = options(**law, test=0.2, validation=0.1, every=5 if quick else 1)
    if quick:
        return Task(dataset, given, NETS[dataset], min(epochs, 2), rounds=2, every=2, batch=200, cohort=3)
    rounds = ROUNDS[dataset]
    return Task(dataset, given, NETS[dataset], epochs, rounds, every=rounds, batch=50)


def cells(dataset: str, epochs: int, quick: bool) -> dict[tuple[int, float], Task]:
    """The tasks of a table, by (C, exponent)."""
    wanted = [(2, 1.3)] if quick else [(C, exponent) for C in CLASSES for exponent in EXPONENTS]
    return {(C, exponent): images(dataset, C, exponent, epochs, quick) for C, exponent in wanted}


def _little(quick: bool) -> dict[str, Any]:
    return {"seeds": 1, "budget": 2} if quick else effort(False)


def _images_table(name: str, number: str, dataset: str, epochs: int) -> None:
    """Tables 2, 6, 7 and 8: the global model's accuracy, by C and exponent."""
    shown = NAMES[dataset]

    @experiment(
        name,
        paper=PAPER.replace("Appendix E", "Appendix F"),
        title=f"Global accuracy on {shown} with power-law clients, E = {epochs}",
        caption=(
            f"Accuracy of the global model on all test rows against the exponent ({number}), and its variance over "
            "clients, a column for each number C of classes that most clients have; means over seeds."
        ),
        **_words(dataset, BOTH),
    )
    def run(quick: bool, progress: Progress) -> Outcome:
        tasks = cells(dataset, epochs, quick)
        found, settings = collect(
            list(tasks.values()), GLOBAL, progress, tuned_on=tasks[2, 1.3], judged="global", **_little(quick)
        )
        return _outcome(found, tasks, GLOBAL, settings, _global_claims(found, tasks))


def _outcome(
    found: Found,
    tasks: Mapping[tuple[int, float], Task],
    contenders: Mapping[str, Contender],
    settings: Any,
    claims: Any,
) -> Outcome:
    task = next(iter(tasks.values()))
    facts = {
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
            for row in final_rows({key: records for key, records in found.items() if key[0] == cell})
        ],
        claims=claims,
        figure=_panels(found, tasks, contenders),
        settings=facts | settings,
        notes=[_table(found, tasks, contenders)],
    )


def _panels(found: Found, tasks: Mapping[tuple[int, float], Task], contenders: Mapping[str, Contender]) -> Any:
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
                values = [float(np.mean(ends(found[task, n], name))) for task in mine.values()]
                lines.append(style.Curve(n, list(mine), values, colour, line, marker="o"))
            row.append(style.Panel(f"C = {C}", lines, title))
        rows.append(row)
    return style.small_multiples(rows, x_label="power-law exponent", log_y=False)


def _table(found: Found, tasks: Mapping[tuple[int, float], Task], contenders: Mapping[str, Contender]) -> str:
    """As the paper prints it."""
    heads = [f"C = {C}, {exponent}" for C, exponent in tasks]
    lines = [f"| method | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for n in contenders:
        values = [spread(ends(found[task, n], accuracy(n, contenders)), True) for task in tasks.values()]
        lines.append(f"| {n} | {' | '.join(values)} |")
    return "\n".join(lines)


def _global_claims(found: Found, tasks: Mapping[tuple[int, float], Task]) -> list[Claim]:
    """FedBC against each rival over all cells of a table: how often it is ahead, and by how much in the mean."""
    claims = []
    for rival in (*RIVALS, "FedAvg, uniform"):
        leads = [_lead(found, task, "FedBC", rival, GLOBAL) for task in tasks.values()]
        who = f"{rival} (not in the paper)" if rival == "FedAvg, uniform" else rival
        claims.append(_most(f"FedBC's global model is more accurate than that of {who} in most cells.", leads))
    for rival in AVERAGES:
        gaps = [
            float(np.mean(ends(found[task, rival], VARIANCE)) - np.mean(ends(found[task, "FedBC"], VARIANCE)))
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


def _lead(found: Found, task: Task, ours: str, theirs: str, contenders: Mapping[str, Contender]) -> float:
    means = [np.mean(ends(found[task, n], accuracy(n, contenders))) for n in (ours, theirs)]
    return float(means[0] - means[1])


for _name, _number, _dataset, _epochs in (
    ("fedbc/table2", "Table 2", "cifar10", 5),
    ("fedbc/table6", "Table 6", "cifar10", 1),
    ("fedbc/table7", "Table 7", "mnist", 1),
    ("fedbc/table8", "Table 8", "mnist", 5),
):
    _images_table(_name, _number, _dataset, _epochs)


@experiment(
    "fedbc/table3",
    paper=PAPER.replace("Appendix E", "Appendix F"),
    title="Local accuracy on CIFAR-10 with power-law clients, E = 5",
    caption=(
        "Mean over clients of the accuracy of what each deploys, on its own test rows, against the exponent (Table 3), "
        "and the variance over clients, a column for each C; means over seeds."
    ),
    **_words("cifar10", LOCALLY),
)
def table3(quick: bool, progress: Progress) -> Outcome:
    """Own models above the global one; adaptation above FedBC."""
    tasks, given = cells("cifar10", 5, quick), _little(quick)
    run = {"tuned_on": tasks[2, 1.3], "judged": "personal", **given}
    found, settings = collect(list(tasks.values()), LOCAL, progress, **run)
    adapted = {label: it._replace(judged=LEAKING) for label, it in LOCAL.items() if it.adapts}
    outcome = _outcome(found, tasks, LOCAL, settings, _local_claims(found, tasks))
    outcome.notes += [
        "Adapted on a batch of test rows, as in the paper; test labels leak:",
        _table(found, tasks, adapted),
        ALSO,
        _table(found, tasks, SERVED),
    ]
    return outcome


def _local_claims(found: Found, tasks: Mapping[tuple[int, float], Task]) -> list[Claim]:
    own = [
        float(
            np.mean(ends(found[task, "FedBC"], "personal_test_mean") - ends(found[task, "FedBC"], "global_test_mean"))
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
        leads = [_lead(found, task, ours, theirs, LOCAL) for task in tasks.values()]
        note = " (not in the paper)" if theirs in ABSENT else ""
        claims.append(_most(f"{ours} is more accurate locally than {theirs}{note} in most cells.", leads))
    fewest = min(C for C, _ in tasks)
    for rival in ("Per-FedAvg", "pFedMe"):
        leads = [_lead(found, task, "FedBC", rival, SERVED) for (C, _), task in tasks.items() if fewest == C]
        text = f"C = {fewest}: FedBC's global model is more accurate than that of {rival} in most cells (Table 2)."
        claims.append(_most(text, leads))
    return claims


def _most(text: str, leads: Sequence[float]) -> Claim:
    """A claim about the cells of a table that holds if the lead is positive in more than half of them."""
    measured = f"{_count(leads)} cells, {100 * np.mean(leads):+.2f} points in the mean"
    return Claim(text, measured, sum(lead > 0 for lead in leads) > len(leads) / 2)


def roles(epochs: int, quick: bool) -> Task:
    given = options(clients=5 if quick else 138, predict="all")
    rounds = 2 if quick else ROUNDS["shakespeare"]
    return Task("shakespeare", given, "lstm", epochs, rounds, rounds, batch=10, rates=LSTM_RATES)


@experiment(
    "fedbc/table9",
    paper=PAPER.replace("Appendix E", "Appendix F"),
    title="Next characters of Shakespeare's roles",
    caption=(
        "Accuracy of the global model on all test rows (Table 9, first row) and its variance over clients (second "
        "row), for E = 1 and 5; means over seeds."
    ),
    data=(
        "Shakespeare's plays, 138 speaking roles as clients; a row is 80 characters, and the next one is to be told at "
        "each of them; a role's last 20% of rows are for test; 10 clients take part in a round."
    ),
    differences=(
        "As for the images: tuned by validation rows for each E, 40 rounds, plain SGD, FedAvg with both weights. "
        "Batches have 10 rows. Rows follow each other and have 80 targets each, where the published data has a row for "
        "every character, with one target: as many characters to tell for an 80th of the work, but those at the "
        "beginning of a row have less before them."
    ),
)
def table9(quick: bool, progress: Progress) -> Outcome:
    """A two-layer LSTM."""
    tasks = [roles(epochs, quick) for epochs in ((1,) if quick else (1, 5))]
    given, rounds = tasks[0].data, tasks[0].rounds
    found, settings = collect(tasks, GLOBAL, progress, **_little(quick))
    palette = style.colours(list(GLOBAL))
    x = [task.epochs for task in tasks]
    panels = [
        style.Panel(
            title,
            [
                style.Curve(n, x, [float(np.mean(ends(found[t, n], column))) for t in tasks], c, marker="o")
                for n, c in palette.items()
            ],
            title,
        )
        for column, title in (("global_test_pooled", "global test accuracy"), (VARIANCE, "variance over clients"))
    ]
    claims = []
    for task in tasks:
        for rival in ("SCAFFOLD", *AVERAGES):
            ours, theirs = (ends(found[task, n], "global_test_pooled") for n in ("FedBC", rival))
            claims.append(
                Claim(
                    f"E = {task.epochs}: FedBC's global model is more accurate than that of {rival}.",
                    f"{spread(ours, True)} against {spread(theirs, True)}",
                    bool(np.mean(ours) > np.mean(theirs)),
                )
            )
    facts = {"clients": dict(given)["clients"], "clients per round": COHORT, "rounds": rounds, "batch": tasks[0].batch}
    return Outcome(
        rows=final_rows(found),
        claims=claims,
        figure=style.small_multiples([panels], x_label="local epochs E", log_y=False),
        settings=facts | settings,
    )
