"""The server's side of a run: it broadcasts, adds the uploads up, takes the method's step, and keeps a checkpoint."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from safetensors.numpy import save_file

from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.core.trees import Tree
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Sites, about
from polyfed.deploy.protocol.rules import Conduct, Ledger, Progress
from polyfed.deploy.protocol.site_facts import blank_federation
from polyfed.deploy.protocol.terms import Plan, method_to_json
from polyfed.deploy.protocol.wire import Refused
from polyfed.deploy.secure.sums import SecureSum, check_secure, words_of
from polyfed.deploy.server.agreement import agree
from polyfed.deploy.server.privacy import Guard
from polyfed.deploy.site.state_file import NEVER
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.devices.layout import layout
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.mechanism import centre_of
from polyfed.engine.programs import Programs, resident
from polyfed.engine.round.records import Sums, from_vector
from polyfed.engine.simulation import as_traced
from polyfed.problem.problem import Problem, precision
from polyfed.studies.newcomers import trained

log = logging.getLogger("polyfed")
Content = Callable[[str], RecordDict]
"""What each site is sent."""
PROBLEM = "problem.json"
"""The section [problem] beside the published server."""


class Coordinator:
    """One run across sites. `run` goes on from the newest checkpoint in `folder`, if there is one."""

    def __init__(
        self, plan: Plan, grid: Grid, folder: Path, conduct: Conduct | None = None, progress: Progress | None = None
    ) -> None:
        self.plan, self.folder, self.conduct = plan, folder, conduct or Conduct()
        self.progress = progress
        self.sites = Sites(grid, plan.sites, self.conduct.poll)
        self.ledger = Ledger()
        plan.method.check()
        self.sampling = sampling(plan.participation, len(plan.sites))
        self.guard = None if plan.privacy is None else Guard(plan.privacy, self.sampling)
        if self.conduct.secure:
            check_secure(plan.method, self.sampling)

    def run(self) -> None:
        """All rounds, then the end: every site settles its state and gets the trained server."""
        self.agreed = agree(self.plan, self.sites, self.folder, self.conduct.gather)
        self.method = self.agreed.method
        with precision(self.plan.dtype):
            self._start()
        self._restore()
        while self.ledger.round < self.plan.rounds:
            self._round()
        self._publish()
        self._finish()

    # The server's own state.

    def _start(self) -> None:
        plan, count = self.plan, len(self.plan.sites)
        one_row = blank_federation(plan.sites, self.agreed.kind, [(1, 0)] * count, {})
        problem = Problem(one_row, plan.architecture, plan.problem["loss"], plan.problem.get("l2", 0.0))
        place = layout(count, 1)
        data, splits = resident(problem, place, plan.seed, in_blocks=False)
        privacy = None if self.guard is None else self.guard.compiled
        self.programs = Programs(
            problem, as_traced(self.method), place, self.sampling, None, data, splits, privacy=privacy
        )
        params = problem.init(plan.init, plan.seed)
        self.server = self.programs.everywhere(self.programs.method.init_server(params))
        start = jax.tree.map(np.asarray, self.programs.method.init_client(params))
        self.none = jax.tree.map(np.asarray, self.programs.nothing(self.server, start))
        self.backlog: dict[int, Tree] = {}
        """broadcasts that ended a round and that some site has yet to absorb, by the round"""

    @property
    def broadcast(self) -> Tree:
        with precision(self.plan.dtype):
            return jax.tree.map(np.asarray, self.programs.method.broadcast(self.server))

    def _round(self) -> None:
        """One round: those who answer in time are in it, if they are enough."""
        begun, number = time.perf_counter(), self.ledger.round
        cohort = [self.plan.sites[place] for place in self._places(number)]
        broadcast = wire.as_record(wire.named(self.broadcast))
        wanted = len(cohort) if self.conduct.minimum is None else min(self.conduct.minimum, len(cohort))
        collect = self._masked if self.conduct.secure else self._plain
        sums, there = collect(number, cohort, lambda site: self._content(site, number, broadcast), wanted)
        for site in cohort:
            if site not in there:
                self.ledger.count(self.ledger.missed, site)
        self._step(number, sums, there)
        self.ledger.seconds += time.perf_counter() - begun
        self._keep()
        if self.progress is not None:
            self.progress(self.ledger, there)

    def _plain(self, number: int, cohort: list[str], content: Content, wanted: int) -> tuple[Sums, list[str]]:
        """The sum of the uploads that came, in the order of the roster, whoever came first; and whose they are."""
        uploads: dict[str, Sums] = {}

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                uploads[site] = self._taken(site, reply, number)
            except Refused as refusal:
                self.ledger.count(self.ledger.refused, site)
                return f"round {number + 1}: {refusal}"
            return None

        for _ in range(self.conduct.patience):
            waiting = [site for site in cohort if site not in uploads]
            if not waiting:
                break
            self.sites.ask(waiting, content, "train", deadline=self.conduct.deadline, take=take, group=str(number + 1))
            if len(uploads) >= wanted:
                break
            log.warning("round %d: %d of at least %d uploads, asking again", number + 1, len(uploads), wanted)
        if len(uploads) < wanted:
            raise _too_few(number, len(uploads), cohort, wanted)
        there = [site for site in cohort if site in uploads]
        return reduce(lambda a, b: jax.tree.map(add, a, b), (uploads[site] for site in there), self._like), there

    def _masked(self, number: int, cohort: list[str], content: Content, wanted: int) -> tuple[Sums, list[str]]:
        """The same sum, of uploads that only their sites see."""
        secure = SecureSum(self.sites, self.conduct.deadline, self.conduct.bound, words_of(self.method))
        like = self._like
        size = trees.count(like.values) + 1

        def check(site: str, reply: RecordDict) -> None:
            try:
                self._checked(site, reply, number)
            except Refused:
                self.ledger.count(self.ledger.refused, site)
                raise
            self.ledger.bits_up += sum(_bits(record) for record in reply.array_records.values())

        for _ in range(self.conduct.patience):
            found = secure.gather(self.plan.run, number, cohort, size, wanted, content, check)
            if found is not None:
                return from_vector(found[0], len(found[1]), like), found[1]
            log.warning("round %d: the secure sum failed, trying again", number + 1)
        raise _too_few(number, 0, cohort, wanted)

    def _places(self, number: int) -> np.ndarray:
        """Who takes part: by the run's seed, as in the simulator, or by lot where sites must not know it."""
        drawn = None if self.guard is None else self.guard.cohort()
        if drawn is not None:
            return drawn
        with precision(self.plan.dtype):
            clients, taken = self.programs.cohort(number)
        return np.sort(clients[taken])

    def _content(self, site: str, number: int, broadcast: Any) -> RecordDict:
        counted = self.ledger.counted.get(site, NEVER)
        found = RecordDict({"broadcast": broadcast})
        if self.method.absorb is not None and counted not in (NEVER, number - 1):
            found["absorb"] = wire.as_record(wire.named(self.backlog[counted]))
        found["about"] = ConfigRecord({"terms": self.agreed.terms[site].to_json(), "round": number, "counted": counted})
        self.ledger.bits_down += sum(_bits(record) for record in found.array_records.values())
        return found

    def _checked(self, site: str, reply: RecordDict, number: int) -> dict[str, Any]:
        """What an answer says of itself, or a refusal: it must be of this site, run, round and version."""
        given = about(reply)
        if "error" in given:
            raise Refused(str(given["error"]))
        _complete(given, "run", "round", "site", "fingerprint", "good")
        if given["site"] != site:
            raise Refused(f"it answers as site '{given['site']}'")
        if given["run"] != self.plan.run or given["round"] != number:
            raise Refused(f"a replayed message: an upload of round {int(given['round']) + 1} of '{given['run']}'")
        if given["fingerprint"] != self.agreed.fingerprints[site]:
            raise Refused(f"another version of {self.method.name} or of its hyper-parameters")
        if not given["good"]:
            raise Refused("its update is not finite")
        return given

    def _taken(self, site: str, reply: RecordDict, number: int) -> Sums:
        """An answer as a sum of one upload, or a refusal."""
        given = self._checked(site, reply, number)
        _complete(given, "weight", "silent")
        values, weight = self._like.values, np.asarray(given["weight"], self._like.weight.dtype)
        centre = None if self.guard is None else self._centre
        values = values if centre is None else centre
        if "upload" in reply.array_records:
            record = reply.array_records["upload"]
            self.ledger.bits_up += _bits(record)
            with precision(self.plan.dtype):
                values = wire.decoded(wire.as_arrays(record), str(given.get("code", "")), values)
        elif not given["silent"]:
            raise Refused("it sent no upload")
        leaves = [leaf for leaf in jax.tree.leaves(values) if np.issubdtype(leaf.dtype, np.inexact)]
        if not all(np.isfinite(leaf).all() for leaf in (*leaves, weight)):
            raise Refused("its update is not finite")
        if self.guard is not None:
            self.guard.refuse_long(values, centre)
        one = np.ones((), self._like.uploads.dtype)
        return Sums(values, weight, one, np.zeros_like(self._like.steps), np.zeros_like(weight))  # pyright: ignore

    @property
    def _centre(self) -> Tree | None:
        """What uploads are clipped around; None for zero."""
        with precision(self.plan.dtype):
            return jax.tree.map(np.asarray, centre_of(self.programs.method, self.broadcast))

    @property
    def _like(self) -> Any:
        """A sum of no uploads."""
        return jax.tree.map(lambda leaf: leaf[0], self.none)

    def _step(self, number: int, sums: Sums, there: list[str]) -> None:
        """The method's step on the sum of the uploads of those who are in it."""
        if self.guard is not None:
            sums = self.guard.noised(sums)
            self.ledger.epsilon = self.guard.spent(number + 1, sums.values)
        with precision(self.plan.dtype):
            placed = jax.tree.map(lambda leaf: self.programs.placed(np.asarray(leaf)[None]), sums)
            self.server = self.programs.update(self.server, placed, number)[0]
        self.ledger.counted |= dict.fromkeys(there, number)
        self.ledger.round = number + 1
        if self.method.absorb is not None:
            if there:
                self.backlog[number] = self.broadcast
            needed = set(self.ledger.counted.values())
            self.backlog = {round: tree for round, tree in self.backlog.items() if round in needed}

    # Checkpoints.

    @property
    def _identity(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "run": plan.run,
            "sites": list(plan.sites),
            "problem": plan.problem,
            "algorithm": method_to_json(self.method),
            "participation": repr(plan.participation),
            "seed": plan.seed,
            "init": plan.init,
            "dtype": plan.dtype,
            "compute": plan.compute,
            **({} if plan.privacy is None else {"privacy": asdict(plan.privacy)}),
        }

    def _keep(self) -> None:
        """Write the checkpoint of this round, before anybody is asked for the next."""
        nobody = np.zeros(0, np.int32)
        state = {
            "method": jax.tree.map(np.asarray, self.server),
            "backlog": {str(round): tree for round, tree in self.backlog.items()},
        }
        snapshot = Snapshot(state, nobody, nobody, np.zeros(0), [])
        meta = {"identity": self._identity, "ledger": asdict(self.ledger), "backlog": sorted(self.backlog)}
        checkpoints.save(self.folder / "checkpoint", self.ledger.round, snapshot, meta)

    def _restore(self) -> None:
        path = checkpoints.latest(self.folder / "checkpoint")
        if path is None:
            return
        meta = json.loads((path / "meta.json").read_text())
        checkpoints.refuse_other(path, meta["identity"], json.loads(json.dumps(self._identity)))
        like = {
            "method": jax.tree.map(np.asarray, self.server),
            "backlog": {str(round): self.broadcast for round in meta["backlog"]},
        }
        found, meta = checkpoints.load(path, like, None)
        with precision(self.plan.dtype):
            self.server = self.programs.everywhere(found.server["method"])
        self.backlog = {int(round): tree for round, tree in found.server["backlog"].items()}
        self.ledger = Ledger(**meta["ledger"])
        log.info("going on after round %d", self.ledger.round)

    # The end.

    def _publish(self) -> None:
        """The trained server, for newcomers: `server/` as a simulated run has it."""
        known = trained.Trained(
            self.method,
            jax.tree.map(np.asarray, self.server),
            self.agreed.outline.model,
            self.agreed.outline.loss.name,
            self.agreed.outline.l2,
            self.agreed.kind,
            self.ledger.round,
            self.plan.seed,
            self.plan.dtype,
        )
        trained.save(self.folder, known)
        write_text(self.folder / trained.FOLDER / PROBLEM, json.dumps(self.plan.problem, indent=1) + "\n")

    def _finish(self) -> None:
        """Every site settles its last round and gets the trained server; who is absent gets it in a later `run`."""
        kept = self.folder / "finished.json"
        finished: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        server = wire.as_record(wire.named(jax.tree.map(np.asarray, self.server)))
        models = self.folder / "models"

        def content(site: str) -> RecordDict:
            counted = self.ledger.counted.get(site, NEVER)
            found = RecordDict({"server": server})
            if self.method.absorb is not None and counted != NEVER:
                found["absorb"] = wire.as_record(wire.named(self.backlog[counted]))
            found["about"] = ConfigRecord({"terms": self.agreed.terms[site].to_json(), "counted": counted})
            return found

        def take(site: str, reply: RecordDict) -> str | None:
            given = about(reply)
            if "error" in given:
                return str(given["error"])
            finished[site] = json.loads(given["metrics"]) if "metrics" in given else None
            if "model" in reply.array_records:
                models.mkdir(exist_ok=True)
                save_file(wire.as_arrays(reply.array_records["model"]), models / f"{site}.safetensors")
            return None

        waiting = [site for site in self.plan.sites if site not in finished]
        self.sites.ask(waiting, content, "evaluate", deadline=self.conduct.deadline, take=take)
        write_text(kept, json.dumps(finished, indent=1) + "\n")


def _complete(given: dict[str, Any], *keys: str) -> None:
    missing = [key for key in keys if key not in given]
    if missing:
        raise Refused(f"the answer lacks {', '.join(missing)}")


def _too_few(number: int, found: int, cohort: list[str], wanted: int) -> PolyfedError:
    return PolyfedError(
        f"round {number + 1}: {found} of {len(cohort)} sites answered, at least {wanted} are needed; "
        "`polyfed deploy run` goes on from here"
    )


def _bits(record: Any) -> int:
    """The bits of the arrays in a record, as they are serialised."""
    return 8 * sum(len(array.data) for array in record.values())
