"""How a round's time grows with the cohort, the local steps, the parameters and the population; measured and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from polyfed.bench.scale import Point, Work, simulation
from polyfed.core.errors import PolyfedError

BASE = Work(clients=10_000)
AXES: dict[str, tuple[Work, ...]] = {
    "cohort": tuple(replace(BASE, cohort=cohort) for cohort in (5, 10, 25, 50, 100, 200, 400)),
    "steps": tuple(replace(BASE, steps=steps) for steps in (1, 2, 5, 10, 20, 40, 80)),
    "parameters": tuple(replace(BASE, features=features) for features in (24, 49, 98, 196, 392, 784, 1568, 3136)),
}
WORDS = {
    "cohort": "clients a round",
    "steps": "local steps",
    "parameters": "parameters",
    "clients": "clients in the population",
}


@dataclass(frozen=True)
class Growth:
    """The seconds of a round at each value of one quantity, and the line through them.

    seconds = fixed + slope * value, with the smallest relative errors. `knee` is where the two terms are equal: well
    below it a round takes the same time whatever the value, well above it the time is in proportion.
    """

    axis: str
    values: tuple[int, ...]
    seconds: tuple[float, ...]

    def line(self) -> tuple[float, float]:
        """(fixed, slope), neither of them negative."""
        x, y = np.array(self.values, float), np.array(self.seconds)
        best: tuple[float, float, float] | None = None
        for use in ((True, True), (True, False), (False, True)):
            design = np.stack([np.ones_like(x), x], axis=1) / y[:, None] * np.array(use)
            line = np.linalg.lstsq(design, np.ones_like(y), rcond=None)[0]
            error = float(np.sum((design @ line - 1) ** 2))
            if (line >= 0).all() and (best is None or error < best[0]):
                best = error, float(line[0]), float(line[1])
        assert best is not None
        return best[1], best[2]

    @property
    def knee(self) -> float | None:
        """Where the fixed part is half of the time; None where there is no such place."""
        fixed, slope = self.line()
        return fixed / slope if fixed > 0 and slope > 0 else None

    @property
    def off(self) -> float:
        """The largest relative distance of a measured time from the line."""
        fixed, slope = self.line()
        return max(
            abs(fixed + slope * value - seconds) / seconds
            for value, seconds in zip(self.values, self.seconds, strict=True)
        )

    def as_dict(self) -> dict[str, object]:
        fixed, slope = self.line()
        return asdict(self) | {"fixed_seconds": fixed, "slope": slope, "knee": self.knee, "off_the_line": self.off}


def bench_growth(repeat: int = 10, axes: dict[str, tuple[Work, ...]] | None = None) -> list[Growth]:
    """Rounds of every point of an axis in turn, `repeat` times; the shortest counts."""
    if repeat < 1:
        raise PolyfedError(f"repeat must be at least 1, found {repeat}")
    return [_axis(name, works, repeat) for name, works in (AXES if axes is None else axes).items()]


def over_populations(points: Sequence[Point]) -> Growth:
    """What `bench_scale` measured, as growth with the clients."""
    return Growth("clients", tuple(p.clients for p in points), tuple(p.round_seconds for p in points))


def _axis(name: str, works: Sequence[Work], repeat: int) -> Growth:
    turns = []
    with ExitStack() as folders:
        runs = [simulation(work, Path(folders.enter_context(TemporaryDirectory()))) for work in works]
        for _ in range(repeat):
            for run in runs:
                before = run.seconds
                run.advance(1)
                turns.append(run.seconds - before)
    seconds = np.array(turns).reshape(repeat, len(runs)).min(axis=0)
    return Growth(name, tuple(getattr(work, name) for work in works), tuple(seconds.tolist()))


def draw(growths: Sequence[Growth], path: Path) -> Path:
    """A panel for each quantity, both axes logarithmic: what was measured, the line, and the knee."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    columns = min(2, len(growths))
    rows = -(-len(growths) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows), layout="constrained")
    for place, growth in enumerate(growths):
        axes = figure.add_subplot(rows, columns, place + 1)
        fixed, slope = growth.line()
        x = np.geomspace(min(growth.values), max(growth.values), 200)
        axes.loglog(x, 1000 * (fixed + slope * x), color="#999999", linewidth=1.2, label="fixed + slope × value")
        axes.loglog(
            growth.values, 1000 * np.array(growth.seconds), "o", color="#2b6cb0", markersize=5, label="measured"
        )
        knee = growth.knee
        if knee is not None and x[0] <= knee <= x[-1]:
            axes.axvline(knee, color="#c05621", linewidth=1, linestyle=":", label=f"knee: {float(f'{knee:.2g}'):,.0f}")
        axes.set_xlabel(WORDS[growth.axis])
        axes.set_ylabel("ms a round")
        axes.set_ylim(1000 * min(growth.seconds) / 3, 1000 * max(growth.seconds) * 3)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.grid(True, which="major", color="#e5e5e5", linewidth=0.6)
        axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
