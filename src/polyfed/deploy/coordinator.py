"""The server's side of a run: it broadcasts, adds the uploads up, takes the method's step, and keeps a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from safetensors.numpy import save_file

from polyfed.deploy import facts, wire
from polyfed.deploy.conduct import Conduct, Ledger, Progress
from polyfed.deploy.exchange import Sites, about
from polyfed.deploy.facts import Outline, Wanted, blank_federation, merged_kind
from polyfed.deploy.kept import NEVER
from polyfed.deploy.private import Guard
from polyfed.deploy.stages import Moment
from polyfed.deploy.terms import Plan, Terms, method_to_json, own_method
from polyfed.deploy.wire import Refused
from polyfed.engine import checkpoint as checkpoints
from polyfed.engine.checkpoint import Snapshot
from polyfed.engine.devices import layout
from polyfed.engine.participation import sampling
from polyfed.engine.programs import Programs, resident
from polyfed.engine.records import Sums
from polyfed.engine.simulation import as_traced
from polyfed.errors import PolyfedError
from polyfed.files import write_text
from polyfed.newcomers import trained
from polyfed.newcomers.fitting import DataKind
from polyfed.privacy import centre_of, resolved
from polyfed.problem import Problem, precision
from polyfed.trees import Tree

log = logging.getLogger("polyfed")
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

    def run(self) -> None:
        """All rounds, then the end: every site settles its state and gets the trained server."""
        self._agree()
        with precision(self.plan.dtype):
            self._start()
        self._restore()
        while self.ledger.round < self.plan.rounds:
            self._round()
        self._publish()
        self._finish()

    # What the sites must report before round 1.

    def _agree(self) -> None:
        """The terms of the run: from what the sites reported, now or before a restart."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.folder / "facts.json"
        known: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
        if set(known) != set(self.plan.sites):
            private = self.guard is not None
            request = facts.Request(facts.ALWAYS, self.plan.problem["loss"], self.plan.problem, private=private)
            known = self._gather(request)
        kept_back: PolyfedError | None = None
        while True:
            self._outline(known)
            if kept_back is not None:  # without the theory's constants: as for a model that has none
                self.outline.model = dataclasses.replace(self.outline.model, design=None)
            try:
                self.method = self.plan.method
                if self.guard is not None:
                    self.method = resolved(self.method, self.outline)
                elif self.method.resolve is not None:
                    self.method = self.method.resolve(self.outline)
                break
            except Wanted as wanted:
                request = facts.Request(
                    (wanted.fact,), self.plan.problem["loss"], self.plan.problem, asdict(self.kind), wanted.batch
                )
                try:
                    for site, found in self._gather(request).items():
                        known[site] |= found
                except PolyfedError as refusal:
                    kept_back = refusal
                    log.warning("%s; going on without the theory's constants", refusal)
            except PolyfedError as error:
                raise (error if kept_back is None else PolyfedError(f"{kept_back}; {error}")) from None
        write_text(kept, json.dumps(known, indent=1) + "\n")
        self.longest = max(found["rows"][0] for found in known.values())
        self.terms = {site: self._terms(place, site) for place, site in enumerate(self.plan.sites)}
        self.fingerprints = {site: terms.fingerprint for site, terms in self.terms.items()}

    def _gather(self, request: facts.Request) -> dict[str, dict[str, Any]]:
        """Every site's facts; the run cannot start without one of them."""
        found: dict[str, dict[str, Any]] = {}
        refusals: dict[str, str] = {}

        def take(site: str, content: RecordDict) -> str | None:
            given = about(content)
            if "facts" not in given:
                refusals[site] = str(given.get("error", "it reported nothing"))
                return refusals[site]
            found[site] = json.loads(given["facts"])
            return None

        message = RecordDict({"about": ConfigRecord({"request": wire.as_json(request)})})
        self.sites.ask(self.plan.sites, lambda _: message, "query", deadline=self.conduct.gather, take=take)
        for site in self.plan.sites:
            if site not in found:
                why = refusals.get(site, f"it did not answer within {self.conduct.gather:g} seconds")
                raise PolyfedError(f"site '{site}' does not take part: {why}")
        return found

    def _outline(self, known: dict[str, dict[str, Any]]) -> None:
        """The whole problem without rows; sites that do not fit together are named."""
        plan, loss = self.plan, self.plan.problem["loss"]
        kinds = [DataKind.from_json(known[site]["kind"]) for site in plan.sites]
        self.kind = merged_kind(plan.sites, kinds, loss)
        rows = [known[site]["rows"] for site in plan.sites]
        shared = set.intersection(*(set(known[site]["columns"]) for site in plan.sites))
        columns = {name: np.array([known[site]["columns"][name] for site in plan.sites]) for name in sorted(shared)}
        reported = {
            name: np.array([known[site][name] for site in plan.sites])
            for name in facts.ON_REQUEST
            if all(name in known[site] for site in plan.sites)
        }
        federation = blank_federation(plan.sites, self.kind, rows, columns)
        l2 = plan.problem.get("l2", 0.0)
        self.outline = Outline(federation, plan.architecture, loss, l2, reported)

    def _terms(self, place: int, site: str) -> Terms:
        plan = self.plan
        method = own_method(self.method, place)
        stages = tuple(stage.name for stage in plan.stages)
        clip = None if plan.privacy is None else plan.privacy.clip
        shared = (plan.problem, self.kind, self.longest, plan.seed, plan.init, plan.dtype, stages, clip)
        return Terms(plan.run, site, method, *shared)

    # The server's own state.

    def _start(self) -> None:
        plan, count = self.plan, len(self.plan.sites)
        one_row = blank_federation(plan.sites, self.kind, [(1, 0)] * count, {})
        problem = Problem(one_row, plan.architecture, plan.problem["loss"], plan.problem.get("l2", 0.0))
        place = layout(count, 1)
        data, splits = resident(problem, place, plan.seed, in_blocks=False)
        privacy = None if self.guard is None else self.guard.compiled
        self.programs = Programs(problem, as_traced(self.method), place, self.sampling, None, data, splits, privacy)
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
        uploads: dict[str, Sums] = {}

        def content(site: str) -> RecordDict:
            return self._content(site, number, cohort, broadcast)

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                uploads[site] = self._taken(site, reply, number)
            except Refused as refusal:
                self.ledger.count(self.ledger.refused, site)
                return f"round {number + 1}: {refusal}"
            return None

        wanted = len(cohort) if self.conduct.minimum is None else min(self.conduct.minimum, len(cohort))
        for _ in range(self.conduct.patience):
            waiting = [site for site in cohort if site not in uploads]
            if not waiting:
                break
            self.sites.ask(waiting, content, "train", deadline=self.conduct.deadline, take=take, group=str(number + 1))
            if len(uploads) >= wanted:
                break
            log.warning("round %d: %d of at least %d uploads, asking again", number + 1, len(uploads), wanted)
        if len(uploads) < wanted:
            raise PolyfedError(
                f"round {number + 1}: {len(uploads)} of {len(cohort)} sites answered, at least {wanted} are needed; "
                "`polyfed deploy run` goes on from here"
            )
        for site in cohort:
            if site not in uploads:
                self.ledger.count(self.ledger.missed, site)
        self._step(number, cohort, uploads)
        self.ledger.seconds += time.perf_counter() - begun
        self._keep()
        if self.progress is not None:
            self.progress(self.ledger, [site for site in cohort if site in uploads])

    def _places(self, number: int) -> np.ndarray:
        """Who takes part: by the run's seed, as in the simulator, or by lot where sites must not know it."""
        drawn = None if self.guard is None else self.guard.cohort()
        if drawn is not None:
            return drawn
        with precision(self.plan.dtype):
            clients, taken = self.programs.cohort(number)
        return np.sort(clients[taken])

    def _content(self, site: str, number: int, cohort: list[str], broadcast: Any) -> RecordDict:
        counted = self.ledger.counted.get(site, NEVER)
        found = RecordDict({"broadcast": broadcast})
        if self.method.absorb is not None and counted not in (NEVER, number - 1):
            found["absorb"] = wire.as_record(wire.named(self.backlog[counted]))
        told = "\n".join(cohort) if self.plan.stages else ""  # nobody else needs to know who else is asked
        found["about"] = ConfigRecord(
            {"terms": self.terms[site].to_json(), "round": number, "counted": counted, "cohort": told}
        )
        self.ledger.bits_down += sum(_bits(record) for record in found.array_records.values())
        return found

    def _taken(self, site: str, reply: RecordDict, number: int) -> Sums:
        """An answer as a sum of one upload, or a refusal."""
        given = about(reply)
        if "error" in given:
            raise Refused(str(given["error"]))
        missing = [
            key for key in ("run", "round", "site", "fingerprint", "weight", "good", "silent") if key not in given
        ]
        if missing:
            raise Refused(f"the answer lacks {', '.join(missing)}")
        if given["site"] != site:
            raise Refused(f"it answers as site '{given['site']}'")
        if given["run"] != self.plan.run or given["round"] != number:
            raise Refused(f"a replayed message: an upload of round {int(given['round']) + 1} of '{given['run']}'")
        if given["fingerprint"] != self.fingerprints[site]:
            raise Refused(f"another version of {self.method.name} or of its hyper-parameters")
        if not given["good"]:
            raise Refused("its update is not finite")
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

    def _step(self, number: int, cohort: list[str], uploads: dict[str, Sums]) -> None:
        """The method's step on the sum; sites are added up in the order of the roster, whoever came first."""
        sums = self._like
        for site in cohort:
            if site in uploads:
                sums = jax.tree.map(lambda a, b: a + b, sums, uploads[site])
        moment = Moment(self.plan.run, number, self.plan.seed, tuple(cohort))
        for stage in self.plan.stages:
            sums = stage.total(sums, moment)
        if self.guard is not None:
            sums = self.guard.noised(sums)
            self.ledger.epsilon = self.guard.spent(number + 1, sums.values)
        with precision(self.plan.dtype):
            placed = jax.tree.map(lambda leaf: self.programs.placed(np.asarray(leaf)[None]), sums)
            self.server = self.programs.update(self.server, placed, number)[0]
        self.ledger.counted |= dict.fromkeys(uploads, number)
        self.ledger.round = number + 1
        if self.method.absorb is not None:
            if uploads:
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
            self.outline.model,
            self.outline.loss.name,
            self.outline.l2,
            self.kind,
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
            found["about"] = ConfigRecord({"terms": self.terms[site].to_json(), "counted": counted})
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


def _bits(record: Any) -> int:
    """The bits of the arrays in a record, as they are serialised."""
    return 8 * sum(len(array.data) for array in record.values())
