"""FedBC, Fig. 5 and 6: how many rows each device has."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from polyfed import data
from polyfed.data.federation import Federation
from polyfed.data.power_law import EXPONENTS, fedbc_classes
from polyfed.papers.fedbc.images import NAMES
from polyfed.papers.fedbc.paper import NETS_PAPER, SYNTHETIC_PAPER
from polyfed.papers.shared import style
from polyfed.papers.shared.claims import POINTS, Claim, at_least, exact
from polyfed.papers.shared.experiment import ExperimentProgress, Measured, Row, experiment
from polyfed.papers.shared.held_out import plus_minus
from polyfed.papers.shared.rows import distinct, where

TABLE_5 = {
    "mnist": ((1222, 7486), (374, 12057), (110, 16444), (32, 21197), (10, 23410)),
    "cifar10": ((1047, 6433), (320, 10398), (94, 14032), (28, 17814), (9, 20067)),
}
"""The smallest and the largest device by exponent, as the paper prints them."""
DEVICES, C, NEAR = 20, 2, 0.02
CROWDS = (30, 70, 100)


def _sizes(source: str, seed: int, **given: object) -> list[int]:
    """Every device's rows, of all splits."""
    federation = data.load(source, seed=seed, **given)
    assert isinstance(federation, Federation)
    parts = (federation.split(part).sizes for part in ("train", "validation", "test"))
    return [int(sum(sizes)) for sizes in zip(*parts, strict=True)]


def judge_fig5(rows: list[Row]) -> list[Claim]:
    made = []
    for source in distinct(rows, "source"):
        for exponent, (least, most) in zip(EXPONENTS, TABLE_5[source], strict=True):
            mine = [row["rows"] for row in where(rows, source=source, exponent=exponent)]
            if not mine:
                continue
            off = max(abs(min(mine) - least) / least, abs(max(mine) - most) / most)
            text = (
                f"{NAMES[source]}, exponent {exponent:g}: the smallest and the largest device have the rows of Table 5"
            )
            words = f"{min(mine):,} and {max(mine):,}, in the paper {least:,} and {most:,}"
            made.append(exact(f"{text}, within {NEAR:.0%}.", words, off <= NEAR))
    return made


def draw_fig5(rows: list[Row]) -> Figure:
    palette = style.ramp(distinct(rows, "exponent"))
    panels = []
    for source in distinct(rows, "source"):
        curves = []
        for exponent, colour in palette.items():
            mine = where(rows, source=source, exponent=exponent)
            places, sizes = ([row[name] for row in mine] for name in ("device", "rows"))
            curves.append(style.Curve(f"{exponent:g}", places, sizes, colour, marker="o"))
        panels.append(style.Panel(NAMES[source], curves, "rows"))
    return style.small_multiples([panels], x_label="device", legend_title="exponent", legend_outside=True)


@experiment(
    "fedbc/fig5",
    paper=NETS_PAPER,
    title="Rows of each of 20 devices, by power-law exponent",
    caption="The rows of each device, training, validation and test together, on a log axis, by power-law exponent.",
    data="CIFAR-10 and MNIST, all images of both files, shared out over 20 devices by `partition = 'power_law'`.",
    differences=(
        "The paper does not spell its law out; here device i has rows in proportion to exponent^-i. One draw: the "
        "sizes follow from the law. Devices have the classes of Table 4 at C = 2."
    ),
    judge=judge_fig5,
    draw=draw_fig5,
)
def fig5(quick: bool, progress: ExperimentProgress) -> Measured:
    """The partition of the tables, as the paper has it."""
    sources = ("mnist",) if quick else ("cifar10", "mnist")
    rows: list[Row] = []
    for source in sources:
        for place, exponent in enumerate(EXPONENTS):
            progress(f"{NAMES[source]}, exponent {exponent:g}", place, len(EXPONENTS))
            classes = fedbc_classes(source, C, exponent)
            law = {"partition": "power_law", "exponent": exponent, "classes": classes, "clients": DEVICES, "test": 0.2}
            sizes = _sizes(source, 0, **law)
            rows += [
                {"source": source, "exponent": exponent, "device": device, "rows": size}
                for device, size in enumerate(sizes)
            ]
    return Measured(rows, {"devices": DEVICES, "C": C, "exponents": EXPONENTS})


def judge_fig6(rows: list[Row]) -> list[Claim]:
    """How unequal the devices are."""
    made = []
    for devices in distinct(rows, "devices"):
        shares = []
        for seed in distinct(rows, "seed"):
            mine = sorted((row["rows"] for row in where(rows, devices=devices, seed=seed)), reverse=True)
            shares.append(sum(mine[: devices // 10]) / sum(mine))
        text = f"{devices} devices: the largest tenth has more than half of all rows (not in the paper)."
        made.append(at_least(text, shares, 0.5, plus_minus(np.array(shares), True), POINTS))
    return made


def draw_fig6(rows: list[Row]) -> Figure:
    palette = style.colours(distinct(rows, "seed"))
    panels = []
    for devices in distinct(rows, "devices"):
        curves = []
        for seed, colour in palette.items():
            mine = where(rows, devices=devices, seed=seed)
            places, sizes = ([row[name] for row in mine] for name in ("device", "rows"))
            curves.append(style.Curve(f"draw {seed + 1}", places, sizes, colour, " ", "."))
        panels.append(style.Panel(f"{devices} devices", curves, "rows"))
    return style.small_multiples([panels], x_label="device", legend_outside=True)


def tell_fig6(rows: list[Row]) -> list[str]:
    lines = ["| devices | draw | smallest | median | largest | all rows |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for devices in distinct(rows, "devices"):
        for seed in distinct(rows, "seed"):
            mine = sorted(row["rows"] for row in where(rows, devices=devices, seed=seed))
            middle = mine[len(mine) // 2]
            lines.append(f"| {devices} | {seed + 1} | {mine[0]:,} | {middle:,} | {mine[-1]:,} | {sum(mine):,} |")
    return ["\n".join(lines)]


@experiment(
    "fedbc/fig6",
    paper=SYNTHETIC_PAPER,
    title="Rows of each device of the synthetic federations",
    caption="The rows of each device of synthetic(0.5, 0.5) with 30, 70 and 100 devices, on a log axis, five draws.",
    data="synthetic(0.5, 0.5) of Li et al. Generated.",
    differences=(
        "Sizes are log-normal with mean 4 and deviation 2 of the logarithm, and 50 more, without a cap; figures and "
        "tables of accuracy have a cap of 2,000 rows. The paper shows one draw. It claims nothing of this figure; the "
        "claims here say how unequal the devices are."
    ),
    judge=judge_fig6,
    draw=draw_fig6,
    tell=tell_fig6,
)
def fig6(quick: bool, progress: ExperimentProgress) -> Measured:
    """A few devices have most of the rows."""
    crowds, draws = (CROWDS[:1], 2) if quick else (CROWDS, 5)
    rows: list[Row] = []
    for place, devices in enumerate(crowds):
        progress(f"{devices} devices", place, len(crowds))
        for seed in range(draws):
            sizes = _sizes("synthetic", seed, alpha=0.5, beta=0.5, clients=devices)
            rows += [
                {"devices": devices, "seed": seed, "device": device, "rows": size} for device, size in enumerate(sizes)
            ]
    return Measured(rows, {"devices": crowds, "draws (seeds from 0)": draws})
