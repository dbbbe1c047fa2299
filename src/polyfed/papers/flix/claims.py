"""The claims of FLIX's convex figures, judged from the summaries of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from polyfed import theory
from polyfed.compress import RandK
from polyfed.core import trees
from polyfed.papers.shared import convex_runs
from polyfed.papers.shared.claims import Claim, every, exact, some, unjudged
from polyfed.papers.shared.convex_runs import ConvexRun, cost_words, filled
from polyfed.papers.shared.experiment import Row
from polyfed.papers.shared.rows import column, distinct, where

Check = Callable[[str, list[Row]], list[Claim]]
"""(dataset, the summaries of its runs) -> what they show."""
Differences = Mapping[str, np.ndarray]
"""By what is compared, one for each seed."""


def gradient_descent(dataset: str, runs: list[Row]) -> list[Claim]:
    """Fig. 2: alpha moves the start but not the rate, which is at least Theorem 2's. `runs` is by descending alpha."""
    starts, rates = column(runs, "start"), column(runs, "rate")
    above = max(run["over_bound"] for run in runs)
    return [
        exact(
            f"{dataset}: the smaller alpha, the lower the start.",
            "f - f* at the start " + ", ".join(f"{start:.1e}" for start in starts),
            all(b < a for a, b in pairwise(starts)),
        ),
        exact(
            f"{dataset}: the speed of linear convergence does not depend on alpha (within a factor of 2).",
            "f - f* falls per round by " + ", ".join(f"{r:.2%}" for r in rates),
            bool(max(rates) <= 2 * min(rates)),
        ),
        exact(
            f"{dataset}: f - f* stays under (1 - mu/L)^t times its start (Theorem 2).",
            f"at most {above:.3g} times that",
            above <= 1 + 1e-9,
        ),
    ]


def over_bound(run: ConvexRun, rows: Sequence[Row]) -> float:
    """The largest ratio of f - f* to (1 - mu/L)^t times its start, as far down as float64 can tell. Theorem 2."""
    constants = convex_runs.problem_of(run.dataset, run.clients, run.l2).constants
    guaranteed = theory.gd_rate(constants.smoothness, constants.convexity, 1.0)  # the same for every equal alpha
    gap, rounds = column(rows, "gap"), column(rows, "round")
    bound = gap[0] * (1 - guaranteed) ** rounds
    return float(np.max((gap / bound)[(bound > 1e-14) & (rounds > 0)]))


def diana(dataset: str, runs: list[Row]) -> list[Claim]:
    """Fig. 3: more coordinates, fewer rounds; smaller alpha, lower start."""
    at_1 = _compressed(runs)
    costs = {k: filled(mine, "rounds") for k, mine in at_1.items()}
    differences = {
        f"k = {a} against {b}": costs[a] - costs[b]
        for a, b in pairwise(costs)
        if _reached(at_1[a], "rounds") or _reached(at_1[b], "rounds")
    }
    text = (
        f"{dataset}: the more coordinates travel, the fewer rounds to {runs[0]['level']:g} (alpha = 1; a tie does not "
        "count as fewer)."
    )
    words = ", ".join(f"{_words(mine, 'rounds')} at k = {k}" for k, mine in at_1.items())
    starts = {alpha: where(runs, alpha=alpha)[0]["start"] for alpha in distinct(runs, "alpha")}
    largest, smallest = max(starts), min(starts)
    return [
        _all_above(text, differences, words, runs[0]["every"])
        if differences
        else unjudged(text, words, "no k reaches it within the rounds"),
        exact(
            f"{dataset}: alpha = {smallest:g} starts lower than alpha = {largest:g}.",
            f"f - f* of {starts[smallest]:.1e} against {starts[largest]:.1e}",
            starts[smallest] < starts[largest],
        ),
    ]


def rounds_to(what: str, ridge: bool = True) -> Check:
    """Counted in rounds, compression does not pay: every k < d that gets to a level does so later than GD.

    With k = d nothing is compressed. A k that does not get there within the rounds shows nothing. Without a ridge the
    theorem's stepsize is a quarter of GD's, and no k could be as quick: there the yardstick is the method with k = d,
    and the claim is not the paper's.
    """

    def check(dataset: str, runs: list[Row]) -> list[Claim]:
        yardstick, lossy = _gd(runs) if ridge else _whole(runs), _lossy(runs)
        name, remark = ("GD", "") if ridge else ("k = d", "; not in the paper")
        text = (
            f"{dataset}: to {what}, {_method(runs)} needs more rounds than {'GD' if ridge else 'with k = d'} for every "
            f"k < d that gets there (alpha = 1; a tie does not count as more{remark})."
        )
        words = ", ".join(f"{_words(mine, 'rounds')} at k = {k}" for k, mine in lossy.items())
        words += f"; {name} {cost_words(yardstick.get('rounds_to'))}"
        if "rounds_to" not in yardstick:
            return [unjudged(text, words, f"{name} does not get there within the rounds")]
        least = yardstick["rounds_to"]
        late = {f"k = {k}": filled(mine, "rounds") - least for k, mine in lossy.items() if _reached(mine, "rounds")}
        if not late:
            return [unjudged(text, words, "no k < d gets there within the rounds")]
        return [_all_above(text, late, words, yardstick["every"])]

    return check


def _all_above(text: str, differences: Differences, words: str, resolution: int) -> Claim:
    """All differences in rounds are above zero. One that is none with any seed refutes it, if single rounds count."""
    for name, difference in differences.items():
        if len(difference) > 1 and not np.any(difference) and resolution == 1:
            return Claim(text, words, "does not hold", f"{name}: a tie with all {len(difference)} seeds")
    return _resolved(every, text, differences, words, resolution - 1)


def _resolved(
    check: Callable[[str, Differences, str], Claim], text: str, differences: Differences, words: str, slack: float
) -> Claim:
    """A claim about costs, of which each may be less by up to `slack`: what is measured lies some rounds apart."""
    claim = check(text, differences, words)
    least = {name: difference - slack for name, difference in differences.items()}
    if claim.verdict == "holds" and check(text, least, words).verdict != "holds":
        return unjudged(text, words, f"{claim.basis}; costs are known to {slack:.3g} only")
    return claim


def bits_to(what: str) -> Check:
    """Counted in bits, it does: some k < d gets to a level with less traffic than GD."""

    def check(dataset: str, runs: list[Row]) -> list[Claim]:
        gd, lossy = _gd(runs), _lossy(runs)
        text = f"{dataset}: to {what}, {_method(runs)} with a suitable k < d sends fewer bits than GD (alpha = 1)."
        words = ", ".join(f"{_words(mine, 'bits', 1e6)} at k = {k}" for k, mine in lossy.items())
        words += f"; GD {cost_words(gd.get('bits_to'), 1e6)} Mbit per client"
        if "bits_to" not in gd:
            return [unjudged(text, words, "GD does not get there within the rounds")]
        saved = {f"k = {k}": (gd["bits_to"] - filled(mine, "bits")) / 1e6 for k, mine in lossy.items()}
        for k, mine in lossy.items():
            if not _reached(mine, "bits") and np.mean(saved[f"k = {k}"]) > 0:  # it may still become dearer than GD
                saved[f"k = {k}"] = np.full(len(mine), np.nan)
        slack = (gd["every"] - 1) * gd["bits_run"] / gd["rounds_run"] / 1e6
        return [_resolved(some, text, saved, words, slack)]

    return check


def stepsize_note(runs: list[Row]) -> str:
    """What the small stepsizes of Theorems 6 and 7 cost, measured where nothing is compressed."""
    ratios = []
    for dataset in distinct(runs, "dataset"):
        mine = where(runs, dataset=dataset)
        gd, whole = _gd(mine), _whole(mine)
        if "rounds_to" in whole and gd.get("rounds_to"):
            ratios.append(f"{whole['rounds_to'] / gd['rounds_to']:.1f} on {dataset}")
    reached = ", ".join(ratios) or "reached on no dataset within the rounds"
    return (
        f"Without a ridge the theorem's stepsize is a quarter of what it is with one. At k = d, where nothing is "
        f"compressed, {_method(runs)} therefore takes about four times GD's rounds to {runs[0]['level']:.0%} of the "
        f"starting gap (alpha = 1: {reached}). Compression has to make up for that before it saves a bit."
    )


def neighbourhood(dataset: str, runs: list[Row]) -> list[Claim]:
    """Fig. 10: DCGD stalls within the bound of Theorem 4, and the nearer the more coordinates travel."""
    noisy = _lossy(runs)
    floors = {k: column(mine, "floor") for k, mine in noisy.items()}
    shares = {k: column(mine, "share") for k, mine in noisy.items()}
    means = [float(np.mean(share)) for share in shares.values()]
    return [
        every(
            f"{dataset}: DCGD ends nearer to the solution the more coordinates travel (alpha = 1).",
            {f"log, k = {a} against {b}": np.log(floors[a]) - np.log(floors[b]) for a, b in pairwise(floors)},
            ", ".join(f"{np.mean(floor):.1e} at k = {k}" for k, floor in floors.items()),
        ),
        every(
            f"{dataset}: DCGD's mean squared distance ends within the bound of Theorem 4 for every k (alpha = 1).",
            {f"1 - share, k = {k}": 1 - share for k, share in shares.items()},
            f"{min(means):.1%} to {max(means):.1%} of the bound",
        ),
    ]


def floor_and_share(run: ConvexRun, rows: Sequence[Row]) -> dict[str, float]:
    """Where a run of DCGD stalls: the median of f - f*, and the mean distance by Theorem 4's bound, at its end."""
    last = _last(rows)
    distance = float(np.mean(column(last, "distance")))
    return {"floor": float(np.median(column(last, "gap"))), "share": distance / distance_bound(run, rows)}


def distance_bound(run: ConvexRun, rows: Sequence[Row]) -> float:
    """Theorem 4 for the last quarter of a run of DCGD, at the first of its rounds; all alpha_i are the same."""
    assert run.k is not None
    problem = convex_runs.problem_of(run.dataset, run.clients, run.l2)
    solution, constants = problem.solve(run.alpha), problem.constants
    gradients = []
    for client, name in enumerate(problem.federation.clients):
        deployed = solution.params
        if solution.local_models is not None:
            own = jax.tree.map(lambda leaf, i=client: leaf[i], solution.local_models.params)
            deployed = trees.mix(run.alpha, solution.params, own)
        gradients.append(np.asarray(ravel_pytree(problem.grad(deployed, name))[0]))
    omega = RandK(run.k).omega(problem.federation.feature_shape[0])
    stepsize = theory.dcgd_stepsize(constants.smoothness, run.alpha, omega)
    start = rows[0]["distance"] / run.alpha**2
    bound = theory.dcgd_distance_bound(
        _last(rows)[0]["round"], start, np.array(gradients), constants.convexity, run.alpha, omega, stepsize
    )
    return float(bound) * run.alpha**2


def rate(rows: Sequence[Row]) -> float:
    """By what share f - f* falls in a round, between 1e-3 and 1e-9 of its start."""
    rounds, gap = column(rows, "round"), column(rows, "gap")
    inside = (gap <= 1e-3 * gap[0]) & (gap >= max(1e-9 * gap[0], 1e-14))
    if inside.sum() < 3:
        return float("nan")
    return float(1 - np.exp(np.polyfit(rounds[inside], np.log(gap[inside]), 1)[0]))


def _reached(runs: Sequence[Row], cost: str) -> bool:
    """Whether every seed got there."""
    return all(f"{cost}_to" in run for run in runs)


def _words(runs: Sequence[Row], cost: str, unit: float = 1.0) -> str:
    return cost_words(float(np.mean(filled(runs, cost))) if _reached(runs, cost) else None, unit)


def _last(rows: Sequence[Row]) -> Sequence[Row]:
    """The last quarter of a curve."""
    return rows[-max(1, len(rows) // 4) :]


def _gd(runs: list[Row]) -> Row:
    return where(runs, alpha=1.0, method="GD")[0]


def _method(runs: list[Row]) -> str:
    return next(run["method"] for run in runs if "k" in run)


def _compressed(runs: list[Row]) -> dict[int, list[Row]]:
    """The compressed runs at alpha = 1 by ascending k, each by seed. With k = d a seed changes nothing: all have it."""
    at_1 = [run for run in where(runs, alpha=1.0) if "k" in run]
    seeds = sorted({run["seed"] for run in at_1})
    groups = {k: sorted(where(at_1, k=k), key=lambda run: run["seed"]) for k in sorted({run["k"] for run in at_1})}
    return {k: mine if len(mine) == len(seeds) else mine * len(seeds) for k, mine in groups.items()}


def _whole(runs: list[Row]) -> Row:
    """With k = d."""
    return list(_compressed(runs).values())[-1][0]


def _lossy(runs: list[Row]) -> dict[int, list[Row]]:
    """Without k = d, where nothing is lost."""
    return dict(list(_compressed(runs).items())[:-1])
