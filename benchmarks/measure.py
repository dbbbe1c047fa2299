"""One work in all frameworks, in turns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from memory import Watch
from works import OURS, operations

from polyfed.bench.loops import ask
from polyfed.bench.work import Peer, Work, loss_difference, make_problem, running, written
from polyfed.core.errors import PolyfedError

AGREE = 0.05
"""A time counts only if the final losses differ by at most this part; the frameworks take the rows in other orders."""
PRODUCTS = 3

Say = Callable[[str], None]


@dataclass(frozen=True)
class Timing:
    """One framework's rounds of a work. A time counts only where both checks of the losses were passed."""

    framework: str
    method: str
    seconds: float
    """the best round"""
    median_seconds: float
    updates_per_second: float
    share: float
    """of the matrix-product rate"""
    memory_mib: float | None
    lines: int
    loss: float
    small_difference: float | None
    """of the losses after a few rounds in which the order of rows cannot matter, relative"""


def measure(key: str, work: Work, repeat: int, threads: int, say: Say) -> dict[str, Any]:
    """The record of a work: the matrix-product rate beside it, a timing of each framework, and what was left out."""
    mine = replace(OURS, method=work.method, gradients=work.gradients)
    peers, gaps = [mine], []
    differences: list[float | None] = [None]
    for peer in work.peers:
        name = peer.environment.framework
        if gap := peer.environment.gap():
            gaps.append(f"{name}: {gap}; `make {name.lower()}` makes it")
            continue
        if peer.method == work.method:
            try:
                say(f"({key}) {name}: the same loss on a small version?")
                differences.append(loss_difference(work, peer))
            except PolyfedError as error:
                gaps.append(str(error))
                continue
        else:
            differences.append(None)
        peers.append(peer)
    turns = _in_turns(key, work, peers, repeat, threads, say)
    rate = max(turns.rates)
    loss = turns.losses[0]
    timings = []
    for peer, seconds, reached, held, small in zip(
        peers, turns.seconds, turns.losses, turns.memory, differences, strict=True
    ):
        if peer.method == work.method and not abs(reached - loss) <= AGREE * loss:
            gaps.append(
                f"{peer.environment.framework}: its loss after {repeat + 1} rounds is {reached:.4g}, ours {loss:.4g}"
            )
            continue
        best = min(seconds)
        done = replace(work, method=peer.method)
        timings.append(
            Timing(
                peer.environment.framework,
                peer.method,
                best,
                float(np.median(seconds)),
                (work.cohort or work.clients) / best,
                operations(done) / best / 1e9 / rate,
                held,
                user_lines(peer.script, peer.method),
                reached,
                small,
            )
        )
    return {
        "key": key,
        "name": work.name,
        "rounds": repeat,
        "product_gflops": rate,
        "gflop": operations(work) / 1e9,
        "timings": [asdict(timing) for timing in timings],
        "gaps": gaps,
    }


@dataclass
class _Turns:
    """What the processes answered, by peer; the rates are those of matrix products."""

    rates: list[float]
    seconds: list[list[float]]
    losses: list[float]
    memory: list[float | None]


def _in_turns(key: str, work: Work, peers: list[Peer], repeat: int, threads: int, say: Say) -> _Turns:
    """A warm-up round of each, `repeat` rounds of each in turns, their losses, and one more round for the memory."""
    with ExitStack() as stack:
        place = stack.enter_context(written(make_problem(work)))
        started = [stack.enter_context(running(work, peer, place, threads=threads)) for peer in peers]
        loops = [loop for loop in started if loop is not None]
        assert len(loops) == len(peers)
        for loop in loops:
            ask(loop)
        turns = _Turns([], [[] for _ in loops], [], [])
        for turn in range(repeat):
            say(f"({key}) repetition {turn + 1} of {repeat}")
            turns.rates += [ask(loops[0], "product")[0] for _ in range(PRODUCTS)]
            for loop, seconds in zip(loops, turns.seconds, strict=True):
                seconds.append(ask(loop)[0])
        turns.losses = [ask(loop, "loss")[0] for loop in loops]
        for loop in loops:
            with Watch(loop.pid) as watch:
                ask(loop)
            turns.memory.append(watch.peak)
        return turns


def user_lines(script: Path, method: str) -> int:
    """The lines between `# user code` and `# end of user code` in a loop's script, without blank ones and comments.

    Those after `# user code of METHOD` count for that method.
    """
    inside, count = False, 0
    for line in script.read_text().splitlines():
        text = line.strip()
        if text.startswith(("# user code", "# end of user code")):
            inside = text in ("# user code", f"# user code of {method}")
        elif inside and text and not text.startswith("#"):
            count += 1
    return count


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
