"""FedBC's nets on CIFAR-10 (Tables 2, 3 and 6) and MNIST (Tables 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from polyfed.data.power_law import EXPONENTS, fedbc_classes
from polyfed.papers.fedbc.contenders import GLOBAL, LEAKING, LOCAL, Contender, FedbcTask
from polyfed.papers.fedbc.paper import (
    AVERAGES,
    BOTH,
    NETS_PAPER,
    POOLED,
    RIVALS,
    UNIFORM,
    VARIANCE,
    final_rows,
    nets_effort,
    rival_words,
)
from polyfed.papers.fedbc.tuned_runs import Recorded, accuracy, collect
from polyfed.papers.shared import claims, style
from polyfed.papers.shared.claims import Claim, better, every, most
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import options, plus_minus
from polyfed.papers.shared.rows import distinct, ends, mean_curve

CLASSES = (1, 2, 3)
IMAGES = (
    "{name}, all images shared out over 20 clients whose sizes follow a geometric law with the exponent, and whose "
    "numbers of classes are those of Table 4; 20% of each client's rows are for test and 10% for validation; 10 "
    "clients take part in a round."
)
DIFFERENCES = (
    "Every method is tuned by validation rows with the same number of candidates, once per table, at C = 2 and "
    "exponent 1.3, and the choice is used in all its cells. Batches have 50 rows. There are {rounds} rounds; the paper "
    "gives no number. Figures are of the last round. Local steps have momentum {momentum}, as in the published code, "
    "but for SCAFFOLD, pFedMe, Per-FedAvg and Per-FedBC, whose steps are not those of SGD on a loss."
)
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
ROUNDS = {"mnist": 100, "cifar10": 200}
"""The paper does not say how many."""
MOMENTUM = 0.5
NETS = {"mnist": "mlp", "cifar10": "lenet"}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
Cells = Mapping[tuple[int, float], FedbcTask]
"""The tasks of a table, by (C, exponent)."""


def _words(dataset: str, more: str = "") -> dict[str, str]:
    """What a page says of the data and of the differences from the paper."""
    differences = DIFFERENCES.format(rounds=ROUNDS[dataset], momentum=MOMENTUM) + more
    return {"data": IMAGES.format(name=NAMES[dataset]), "differences": differences}


def images(dataset: str, C: int, exponent: float, epochs: int, quick: bool) -> FedbcTask:
    classes = tuple(fedbc_classes(dataset, C, exponent))
    law = {"partition": "power_law", "exponent": exponent, "classes": classes, "clients": 20}
    given = options(**law, test=0.2, validation=0.1, every=5 if quick else 1)
    if quick:
        work = FedbcTask(dataset, given, NETS[dataset], min(epochs, 2), rounds=2, every=2, batch=200, cohort=3)
        return replace(work, momentum=MOMENTUM)
    rounds = ROUNDS[dataset]
    return FedbcTask(dataset, given, NETS[dataset], epochs, rounds, every=rounds, batch=50, momentum=MOMENTUM)


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
        judge=judge_global,
        draw=lambda rows: _panels(rows, GLOBAL),
        tell=lambda rows: [_table(rows, GLOBAL)],
    )
    def run(quick: bool, progress: ExperimentProgress) -> Measured:
        tasks = cells(dataset, epochs, quick)
        recorded, settings = collect(
            list(tasks.values()), GLOBAL, progress, tuned_on=tasks[2, 1.3], judged="global", **nets_effort(quick)
        )
        return _measured(recorded, tasks, settings)


def _measured(recorded: Recorded, tasks: Cells, settings: dict[str, object]) -> Measured:
    task = next(iter(tasks.values()))
    facts: dict[str, object] = {
        "clients": 20,
        "clients per round": task.cohort,
        "E": task.epochs,
        "batch": task.batch,
        "momentum": task.momentum,
        "rounds": task.rounds,
    }
    rows = [
        {"C": C, "exponent": exponent, **row}
        for (C, exponent), cell in tasks.items()
        for row in final_rows({key: records for key, records in recorded.items() if key[0] == cell})
    ]
    return Measured(rows, facts | settings)


def _cells(rows: list[Row], C: int | None = None) -> list[tuple[int, float]]:
    """(C, exponent) of the cells of a table, or of one C."""
    return list(dict.fromkeys((row["C"], row["exponent"]) for row in rows if C in (None, row["C"])))


def _values(rows: list[Row], cell: tuple[int, float], label: str, column: str) -> np.ndarray:
    return ends(rows, column, C=cell[0], exponent=cell[1], method=label)


def _panels(rows: list[Row], contenders: Mapping[str, Contender]) -> Figure:
    looks = style.looks({label: it.algorithm for label, it in contenders.items()})
    grid = []
    for title, column in (("test accuracy", None), ("variance over clients", "variance")):
        row = []
        for C in distinct(rows, "C"):
            lines = []
            for n, (colour, line) in looks.items():
                name = accuracy(n, contenders)
                name = name if column is None else f"{name.rpartition('_')[0]}_{column}"
                exponents, values = mean_curve(rows, name, "exponent", C=C, method=n)
                lines.append(style.Curve(n, exponents, values, colour, line, marker="o"))
            row.append(style.Panel(f"C = {C}", lines, title))
        grid.append(row)
    return style.small_multiples(grid, x_label="power-law exponent", log_y=False)


def _table(rows: list[Row], contenders: Mapping[str, Contender]) -> str:
    """As the paper prints it."""
    cells = _cells(rows)
    heads = [f"C = {C}, {exponent}" for C, exponent in cells]
    lines = [f"| method | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for n in contenders:
        values = [plus_minus(_values(rows, cell, n, accuracy(n, contenders)), True) for cell in cells]
        lines.append(f"| {n} | {' | '.join(values)} |")
    return "\n".join(lines)


def judge_global(rows: list[Row]) -> list[Claim]:
    """FedBC against each rival, in the mean over the cells and cell by cell; and what the paper says of single C."""
    made = []
    for rival in (*RIVALS, UNIFORM):
        leads = _leads(rows, _cells(rows), rival)
        made += _table_claims(f"FedBC's global model is more accurate than that of {rival_words(rival)}", leads)
    for rival in AVERAGES:
        gaps = [-gap for gap in _leads(rows, _cells(rows), rival, VARIANCE)]
        text = f"The accuracy of FedBC's global model varies less over clients than that of {rival}"
        made += _table_claims(text, gaps, claims.PLAIN)
    if rows[0]["task"] == "cifar10":
        made += _cifar_claims(rows)
    return made


def _cifar_claims(rows: list[Row]) -> list[Claim]:
    """Table 2: C = 1 and C = 3. Table 6: by 3 points at C = 1 and exponent 1.3."""
    if rows[0]["E"] == 1:
        hard = [cell for cell in _cells(rows, 1) if cell[1] == 1.3]
        leads = {rival: _leads(rows, hard, rival)[0] - 0.03 for rival in RIVALS} if hard else {}
        text = "C = 1, exponent 1.3: FedBC's global model is more accurate than all of the paper's others by 3 points."
        return [every(text, leads, _lead_words(leads, 0.03), claims.POINTS)] if leads else []
    made, hard = [], _cells(rows, 1)
    if hard:
        leads = {rival: np.mean(_leads(rows, hard, rival), axis=0) for rival in RIVALS}
        text = "C = 1: FedBC's global model is more accurate than each of the paper's others, in the mean over the "
        made.append(every(text + "exponents.", leads, _lead_words(leads), claims.POINTS))
    if _cells(rows, 3):
        lead = np.mean(_leads(rows, _cells(rows, 3), RIVALS[0]), axis=0)
        text = f"C = 3: FedBC's global model is more accurate than that of {RIVALS[0]}, in the mean over the exponents."
        made.append(better(text, lead, np.zeros_like(lead), _lead_words({RIVALS[0]: lead}), claims.POINTS))
    return made


def _lead_words(leads: Mapping[str, np.ndarray], less: float = 0.0) -> str:
    return ", ".join(f"{100 * (np.mean(lead) + less):+.2f} points on {rival}" for rival, lead in leads.items())


def _leads(rows: list[Row], cells: Sequence[tuple[int, float]], rival: str, column: str = POOLED) -> list[np.ndarray]:
    """By how much FedBC is above a rival in each cell, by seed."""
    return [_values(rows, cell, "FedBC", column) - _values(rows, cell, rival, column) for cell in cells]


def _table_claims(text: str, leads: Sequence[np.ndarray], unit: claims.Unit = claims.POINTS) -> list[Claim]:
    """That a lead is above zero in the mean over the cells of a table, and in most of them."""
    ahead = f"ahead in {sum(float(lead.mean()) > 0 for lead in leads)} of {len(leads)} cells by their means"
    mean = np.mean(leads, axis=0)
    whole = better(f"{text}, in the mean over the cells.", mean, np.zeros_like(mean), ahead, unit)
    return [whole, most(f"{text} in most cells.", leads, ahead, unit)]


def _tell_local(rows: list[Row]) -> list[str]:
    adapted = {label: it._replace(judged=LEAKING) for label, it in LOCAL.items() if it.adapts}
    return [
        _table(rows, LOCAL),
        "Adapted on a batch of test rows, as in the paper; test labels leak:",
        _table(rows, adapted),
        ALSO,
        _table(rows, SERVED),
    ]


def judge_local(rows: list[Row]) -> list[Claim]:
    """Own models against the global one, the methods against each other, and their global models."""
    cells = _cells(rows)
    own = [
        _values(rows, c, "FedBC", "personal_test_mean") - _values(rows, c, "FedBC", "global_test_mean") for c in cells
    ]
    made = _table_claims("FedBC's local models are better than its global model on the clients' own rows", own)
    for ours, theirs in (
        ("FedBC-FineTune", "FedBC"),
        ("Per-FedAvg", "FedBC"),
        ("Per-FedBC", "FedBC"),
        ("Per-FedBC, own models", "FedBC"),
        ("FedBC", "pFedMe"),
        *(("FedBC", rival) for rival in ABSENT),
    ):
        note = " (not in the paper)" if theirs in ABSENT else ""
        text = f"{ours} is more accurate locally than {theirs}{note}"
        made += _table_claims(text, _local_leads(rows, cells, ours, theirs, LOCAL))
    many = [cell for cell in cells if cell[0] > 1 and cell[1] > 1.1]
    for ours in ("Per-FedBC", "Per-FedBC, own models"):
        text = f"C > 1, exponents above 1.1: {ours} is more accurate locally than Per-FedAvg"
        made += _table_claims(text, _local_leads(rows, many, ours, "Per-FedAvg", LOCAL))
    fewest = min(C for C, _ in cells)
    for rival in ("Per-FedAvg", "pFedMe"):
        leads = _local_leads(rows, _cells(rows, fewest), "FedBC", rival, SERVED)
        text = f"C = {fewest}: FedBC's global model is more accurate than that of {rival} (Table 2)"
        made += _table_claims(text, leads)
    return made


def _local_leads(
    rows: list[Row], cells: Sequence[tuple[int, float]], ours: str, theirs: str, contenders: Mapping[str, Contender]
) -> list[np.ndarray]:
    names = [(label, accuracy(label, contenders)) for label in (ours, theirs)]
    return [np.subtract(*(_values(rows, cell, label, column) for label, column in names)) for cell in cells]


@experiment(
    "fedbc/table3",
    paper=NETS_PAPER,
    title="Local accuracy on CIFAR-10 with power-law clients, E = 5",
    caption=(
        "Mean over clients of the accuracy of what each deploys, on its own test rows, against the exponent (Table 3), "
        "and the variance over clients, a column for each C; means over seeds."
    ),
    **_words("cifar10", LOCALLY),
    judge=judge_local,
    draw=lambda rows: _panels(rows, LOCAL),
    tell=_tell_local,
)
def table3(quick: bool, progress: ExperimentProgress) -> Measured:
    """Own models are better than the global one, and adapted ones better than FedBC's."""
    tasks = cells("cifar10", 5, quick)
    recorded, settings = collect(
        list(tasks.values()), LOCAL, progress, tuned_on=tasks[2, 1.3], judged="personal", **nets_effort(quick)
    )
    return _measured(recorded, tasks, settings)


for _name, _number, _dataset, _epochs in (
    ("fedbc/table2", "Table 2", "cifar10", 5),
    ("fedbc/table6", "Table 6", "cifar10", 1),
    ("fedbc/table7", "Table 7", "mnist", 1),
    ("fedbc/table8", "Table 8", "mnist", 5),
):
    _images_table(_name, _number, _dataset, _epochs)
