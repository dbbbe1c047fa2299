"""What a site agrees to: its own limits on a run's terms, and the terms that its operator has seen."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from polyfed.algorithms import PerFedBC
from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.compressed import CompressedMethod
from polyfed.algorithms.shared.local_work import LocalSteps, work_of
from polyfed.algorithms.shared.mixture import MixtureMethod
from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.data.tables.sums import MIN_COUNT
from polyfed.deploy.protocol.plain_values import Refused, printable
from polyfed.deploy.protocol.tables import TableSettings
from polyfed.deploy.protocol.terms import Terms, method_from_json
from polyfed.problem.objective import Batching

log = logging.getLogger("polyfed")
NOT_PINNED = ("run", "site", "kind", "preparation", "longest", "alone")
"""Terms that may differ from run to run without asking: names, what follows from the sites' rows, training alone."""
LONGEST = 10**6
"""Letters of a change that the operator is shown: what is cut off would be accepted unseen."""
TABLES = "tables"
"""The key under which questions about the site's table are pinned."""


@dataclass(frozen=True)
class RunPolicy:
    """The limits of a site; the section [policy] of its config. A server whose terms are beyond one gets no answer."""

    algorithms: tuple[str, ...] = ()
    """those that may run here; none named: any"""
    smallest_batch: int = 8
    """the fewest rows in a step, and the fewest that the steps of a round leave out: one row alone is told"""
    fewest_steps: int = 1
    """the fewest steps in a round"""
    fewest_sites: int = 2
    """the fewest sites in a sum, masked or not"""
    most_rounds: int = 10_000
    """the most rounds of a run"""
    noise: float = 0.0
    """the least noise, in multiples of the clip; above 0 only private runs are accepted"""
    clip: float = float("inf")
    """the largest clip of a private run"""
    min_count: int = MIN_COUNT
    """the fewest rows that a category must have to be named to others"""
    pinned_sites: bool = False
    """masked sums only with sites whose public keys the operator pinned in the site's roster/"""
    changes: Literal["ask", "allow"] = "ask"
    """what happens to terms that differ from those of the first run: the operator is asked, or they are accepted"""

    def check(self, terms: Terms, rows: int) -> None:
        """Refuse terms that are beyond a limit, naming it."""
        method, work = terms.method, work_of(terms.method)
        if self.algorithms and method.name not in self.algorithms:
            raise Refused(f"its policy allows {', '.join(self.algorithms)}, the run is of {method.name}")
        batch = rows if work.size == "full" else min(work.size, rows)
        self._check_batches(method, work, rows)
        steps = work.steps if isinstance(method, LocalSteps) else 1
        if work.epochs is not None:
            steps = work.epochs * max(1, -(-rows // max(batch, 1)))
        if steps < self.fewest_steps:
            raise Refused(f"its policy allows at least {self.fewest_steps} steps a round, the run may have {steps}")
        if terms.fewest < self.fewest_sites:
            raise Refused(
                f"its policy allows sums of at least {self.fewest_sites} sites, the run's may be {terms.fewest}"
            )
        if terms.rounds > self.most_rounds:
            raise Refused(f"its policy allows at most {self.most_rounds} rounds, the run has {terms.rounds}")
        noise = 0.0 if terms.clip is None else terms.noise
        if noise < self.noise:
            raise Refused(f"its policy allows noise of at least {self.noise:g}, the run has {noise:g}")
        if terms.clip is not None and terms.clip > self.clip:
            raise Refused(f"its policy allows a clip of at most {self.clip:g}, the run has {terms.clip:g}")

    def check_model(self, terms: Terms, rows: int) -> None:
        """Refuse steps on few rows after the rounds, where the site's own model leaves it: it tells what they did."""
        after: dict[str, int | str] = {}
        if terms.finetune is not None:
            after["deploy.finetune_batch"] = terms.finetune.batch
        if terms.alone is not None and terms.deploy == "alone":
            after["deploy.alone.batch"] = work_of(method_from_json(terms.alone)).size
        for name, size in after.items():
            if isinstance(size, int) and min(size, rows) < self.smallest_batch:
                raise Refused(
                    f"its policy allows batches of at least {self.smallest_batch} rows where its own model leaves it, "
                    f"{name} is {size}"
                )

    def _check_batches(self, method: Algorithm, work: Batching, rows: int) -> None:
        """Refuse steps on few rows, and steps on all rows but a few.

        At a solution the gradients of all rows cancel: the sum over all but one is minus that of the one.
        """
        least, batch = self.smallest_batch, rows if work.size == "full" else min(work.size, rows)
        allowed = f"its policy allows batches of at least {least} rows"
        if batch < least:
            raise Refused(f"{allowed}, the run has {batch}")
        if work.replace and work.size != "full" and rows < 2 * least:
            raise Refused(
                f"{allowed}, and draws with replacement of {2 * least} at least: of fewer they often leave out one "
                "alone; set algorithm.even = true in place of algorithm.replace"
            )
        if work.even or _takes_whole_batches(method, work, rows // batch):
            self._check_smallest(work, rows, allowed, "batch")
        if isinstance(method, MixtureMethod) and method.plm and method.plm_epochs is not None:
            training = method.local_training
            epochs = Batching(training.batch, 1, training.epochs, even=training.even)
            self._check_smallest(epochs, rows, f"{allowed}, those of local models included", "plm_batch")

    def _check_smallest(self, work: Batching, rows: int, allowed: str, field: str) -> None:
        """Refuse a pass with a batch that is too small, and say what has none."""
        few, least = work.fewest(rows), self.smallest_batch
        if few >= least:
            return
        even, enough = replace(work, even=True), 2 * least - 1  # even batches of so many rows are none too small
        ways = [] if work.even else ["algorithm.even = true"]
        ways += [] if even.fewest(rows) >= least else [f"algorithm.{field} = {enough}"]
        which = "smallest" if work.even else "last"
        raise Refused(f"{allowed}, the {which} one of a pass has {few}; set {' and '.join(ways)}")


def _takes_whole_batches(method: Algorithm, work: Batching, whole: int) -> bool:
    """Whether a round may take all whole batches of a pass: what is left is then the next one, or is left out alone."""
    if isinstance(method, CompressedMethod):  # which takes one batch
        return whole <= 1
    if work.epochs is not None or not isinstance(method, LocalSteps):  # a number of steps that is drawn
        return True
    return whole <= max(work.steps, method.inner_steps if isinstance(method, PerFedBC) else 0)


class PinnedTerms:
    """`terms.json` in a site's folder: the terms that its operator has seen. Others wait in `proposed.json`."""

    def __init__(self, folder: Path) -> None:
        self.pinned, self.proposed = folder / "terms.json", folder / "proposed.json"

    def check(self, terms: Terms, ask: bool = True) -> None:
        """Accept the terms of the first run, and those that equal accepted ones; any other waits for the operator.

        Without `ask` others are accepted, too, apart from masked sums with another roster: they could be subtracted.
        """
        plain = _plain(terms)
        rosters = [sorted(before["roster"]) for before in self._accepted(plain) if before["secure"]]
        other = terms.secure and bool(rosters) and sorted(terms.roster) not in rosters
        self._check(plain, ask or other, "terms")

    def check_tables(self, settings: TableSettings, ask: bool = True) -> None:
        """The same for questions about the site's table: other ones, subtracted from the first, could tell of rows."""
        self._check({TABLES: json.loads(settings.to_json())}, ask, "questions about its table")

    def waiting(self) -> list[str]:
        """How the terms that wait differ from the accepted ones, a line for each; empty if none wait."""
        return self._told(_read(self.proposed))

    def _accepted(self, plain: dict[str, Any]) -> list[dict[str, Any]]:
        """What was accepted of the same sort: terms, or questions about the table."""
        return [before for before in _read(self.pinned) if (TABLES in before) == (TABLES in plain)]

    def _check(self, plain: dict[str, Any], ask: bool, what: str) -> None:
        accepted = self._accepted(plain)
        if plain in accepted:
            return
        if accepted and ask:
            if _read(self.proposed) != [plain]:
                log.warning("new %s wait in %s: %s", what, self.proposed, "; ".join(_differences(accepted[-1], plain)))
                self._write(self.proposed, [plain])
            raise Refused(
                f"the {what} are not those that its operator accepted; `polyfed deploy accept` there accepts them"
            )
        if not accepted:
            shown = json.dumps(plain, sort_keys=True)
            log.info("the %s of the first run, pinned in %s: %s", what, self.pinned, shown)
        self._write(self.pinned, [*_read(self.pinned), plain])

    def accept(self, shown: Sequence[str]) -> None:
        """Accept the terms that wait, if they are those whose differences were shown: others may have come since."""
        proposed = _read(self.proposed)
        if self._told(proposed) != list(shown):
            raise PolyfedError("other terms came while these were looked at; look again before you accept them")
        self._write(self.pinned, [*_read(self.pinned), *proposed])
        self.proposed.unlink(missing_ok=True)

    def _told(self, proposed: Sequence[dict[str, Any]]) -> list[str]:
        return _differences([{}, *self._accepted(proposed[-1])][-1], proposed[-1]) if proposed else []

    def _write(self, path: Path, terms: list[dict[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(terms, indent=1, sort_keys=True) + "\n")


def _plain(terms: Terms) -> dict[str, Any]:
    return {name: value for name, value in json.loads(terms.to_json()).items() if name not in NOT_PINNED}


def _read(path: Path) -> list[dict[str, Any]]:
    """The terms in a file. One that is damaged is not taken for none: others would be pinned in its place."""
    try:
        given = json.loads(path.read_text()) if path.exists() else []
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}; its backup has what was accepted") from None
    if not isinstance(given, list) or not all(isinstance(terms, dict) for terms in given):
        raise PolyfedError(f"{path}: no list of terms; its backup has what was accepted")
    return given


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What changed, by its path."""
    before, after = _flat(old), _flat(new)
    return [
        printable(f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}", LONGEST)
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        return {
            k: v for name, part in value.items() for k, v in _flat(part, f"{path}.{name}" if path else name).items()
        }
    return {path: json.dumps(value)}
