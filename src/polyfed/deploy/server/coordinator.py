"""The server's side of a run: it broadcasts, adds the uploads up, takes the method's step, and keeps a checkpoint."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from polyfed.algorithms.contract import global_model
from polyfed.core import trees
from polyfed.core.errors import PolyfedError
from polyfed.core.trees import Tree
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.aggregate import check_aggregate
from polyfed.deploy.protocol.messages import MessageFor, OpenMessages, SiteGrid, SiteMessenger
from polyfed.deploy.protocol.plain_values import Refused
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.deploy.protocol.site_facts import blank_federation
from polyfed.deploy.protocol.terms import DeployedRun, method_to_json
from polyfed.deploy.secure.server_sum import SecureSumServer, check_secure, words_of
from polyfed.deploy.server.agreement import reach_agreement
from polyfed.deploy.server.handover import hand_over
from polyfed.deploy.server.ledger import AfterRound, Ledger
from polyfed.deploy.server.privacy import PrivacyKeeper
from polyfed.deploy.server.published import publish
from polyfed.deploy.server.robust import check_update, one_upload
from polyfed.deploy.server.uploads import UploadReader, unweighted_norm
from polyfed.deploy.site.state_file import KEPT_ROUNDS, NEVER
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.checkpoint.checkpoint import Snapshot
from polyfed.engine.devices.layout import layout
from polyfed.engine.participation import sampling
from polyfed.engine.placement import resident
from polyfed.engine.programs import Programs
from polyfed.engine.robust.settings import WINDOW, Aggregate
from polyfed.engine.round.order import in_order
from polyfed.engine.round.records import Sums, from_vector
from polyfed.engine.simulation import as_traced
from polyfed.problem.problem import Problem, precision

log = logging.getLogger("polyfed")
LONGEST_WAIT = 8
"""How many times the deadline a masked sum that is tried again may wait: each try waits twice as long as the last."""


class Coordinator:
    """Carries out one run across sites, from the newest checkpoint in `folder` if there is one."""

    def __init__(
        self,
        deployed: DeployedRun,
        grid: SiteGrid,
        folder: Path,
        rules: FederationRules | None = None,
        after_round: AfterRound | None = None,
    ) -> None:
        self.deployed, self.folder, self.rules = deployed, folder, rules or FederationRules()
        self.after_round = after_round
        self.sites = SiteMessenger(grid, deployed.sites, self.rules.poll, lambda site: self.ledger.note_refusal(site))
        self.ledger = Ledger()
        self._doubled = 0
        """how often the deadline is doubled for a masked sum at its first try: sites that were slow will be"""
        deployed.method.check()
        self.sampling = sampling(deployed.participation, len(deployed.sites))
        self.privacy = None if deployed.privacy is None else PrivacyKeeper(deployed.privacy, self.sampling)
        if self.rules.secure:
            check_secure(deployed.method, self.sampling)
        if deployed.aggregate is not None:
            check_aggregate(deployed.aggregate, self.rules, deployed.privacy is not None, self.sampling)

    def run(self) -> None:
        """All rounds, then the end: every site settles its state and gets the trained server."""
        self.agreement = reach_agreement(self.deployed, self.sites, self.folder, self.rules)
        self.method = self.agreement.method
        with precision(self.deployed.dtype):
            self._start()
        self._restore()
        if self.after_round is not None and self.ledger.round:  # it may have been stopped before it was told
            self.after_round(self.ledger, self.ledger.senders)
        while self.ledger.round < self.deployed.rounds:
            self._round()
        publish(self.folder, self.agreement, jax.tree.map(np.asarray, self.server), self.ledger.round)
        hand_over(self)

    # The server's own state.

    def _start(self) -> None:
        deployed, count = self.deployed, len(self.deployed.sites)
        one_row = blank_federation(deployed.sites, self.agreement.kind, [(1, 0)] * count, {})
        problem = Problem(one_row, deployed.architecture, deployed.problem["loss"], deployed.problem.get("l2", 0.0))
        place = layout(count, 1)
        data, splits = resident(problem, place, deployed.seed, in_blocks=False)
        privacy = None if self.privacy is None else self.privacy.compiled
        self.programs = Programs(
            problem, as_traced(self.method), place, self.sampling, None, data, splits, privacy=privacy
        )
        params = problem.init(deployed.init, deployed.seed)
        if deployed.finish.needs_global and global_model(self.method.init_server(params)) is None:
            raise PolyfedError(f"{self.method.name} has no global model, which [deploy] asks for")
        self.server = self.programs.everywhere(self.programs.method.init_server(params))
        start = jax.tree.map(np.asarray, self.programs.method.init_client(params))
        self.empty_sums: Sums = jax.tree.map(np.asarray, self.programs.no_uploads(self.server, start))
        self.uploads = UploadReader(self.agreement, self._empty_sum, self.rules.norm, self.rules.outlier)
        self.params = jax.tree.map(np.asarray, params)
        """in the shapes and types of every site's own model"""
        if deployed.aggregate is not None:
            check_update(self.programs.method, self.server, self._empty_sum.values)
        self.backlog: dict[int, Tree] = {}
        """broadcasts that ended a round and that some site has yet to absorb, by round"""

    @property
    def broadcast(self) -> Tree:
        with precision(self.deployed.dtype):
            return jax.tree.map(np.asarray, self.programs.method.broadcast(self.server))

    def _round(self) -> None:
        """One round: those who answer in time are in it, if they are enough."""
        begun = time.perf_counter()
        self.ledger.senders = senders = in_order(SiteRound(self, self.ledger.round))
        self.ledger.seconds += time.perf_counter() - begun
        self._save()
        if self.after_round is not None:
            self.after_round(self.ledger, senders)

    def collect(self, number: int, cohort: list[str]) -> tuple[Sums, list[str]]:
        """The sum of the uploads of those who answer in time, and who they are; too few are an error."""
        broadcast = wire.as_record(wire.named(self.broadcast))
        wanted = len(cohort) if self.rules.minimum is None else min(self.rules.minimum, len(cohort))
        collect = self._masked if self.rules.secure else self._plain
        return collect(number, cohort, lambda site: self._message(site, number, broadcast), wanted)

    def _plain(self, number: int, cohort: list[str], content: MessageFor, wanted: int) -> tuple[Sums, list[str]]:
        """The sum of the uploads that came, in the order of the roster whoever came first, and whose they are."""
        uploads: dict[str, Sums] = {}

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                upload = self.uploads.taken(site, reply, number)
                if self.privacy is not None:
                    self.privacy.refuse_unclipped(upload.values)
            except Refused as refusal:
                return f"round {number + 1}: {refusal}"
            self.ledger.bits_up += sum(_bits(record) for record in reply.array_records.values())
            uploads[site] = upload
            return None

        sent: dict[str, OpenMessages] = {}
        for _ in range(self.rules.patience):
            waiting = [site for site in cohort if site not in uploads]
            if not waiting:
                break
            self.sites.ask(waiting, content, "train", deadline=self.rules.deadline, take=take, sent=sent)
            for site, why in self.uploads.outliers(uploads, self.ledger.norms).items():
                del uploads[site]
                self.ledger.note_refusal(site)
                log.warning("site '%s' refused: round %d: %s", site, number + 1, why)
            if len(uploads) >= wanted:
                break
            log.warning("round %d: %d of at least %d uploads, waiting on", number + 1, len(uploads), wanted)
        self.sites.forget(sent)
        if len(uploads) < wanted:
            raise _too_few(number, len(uploads), cohort, wanted)
        self.ledger.note_norms(map(unweighted_norm, uploads.values()))
        senders = [site for site in cohort if site in uploads]
        if self.deployed.aggregate is not None:
            return self._one(self.deployed.aggregate, [uploads[site] for site in senders]), senders
        with np.errstate(over="ignore", invalid="ignore"):  # `step` refuses what is not finite
            total = reduce(lambda a, b: jax.tree.map(add, a, b), (uploads[site] for site in senders), self._empty_sum)
        return total, senders

    def _one(self, aggregate: Aggregate, uploads: list[Sums]) -> Sums:
        """What the operator's rule makes of single uploads."""
        with precision(self.deployed.dtype):
            one, norm = one_upload(aggregate, uploads, self._empty_sum, self.ledger.medians)
        if norm is not None:
            self.ledger.medians = [*self.ledger.medians, norm][-WINDOW:]
        return one

    def _masked(self, number: int, cohort: list[str], content: MessageFor, wanted: int) -> tuple[Sums, list[str]]:
        """The same sum, of uploads that nobody but their sites sees."""
        secure = SecureSumServer(self.sites, self.rules.deadline, self.rules.bound, words_of(self.method))
        like = self._empty_sum
        size = trees.count(like.values) + 1

        def check(site: str, reply: RecordDict) -> None:
            self.uploads.checked(site, reply, number)
            self.ledger.bits_up += sum(_bits(record) for record in reply.array_records.values())

        for attempt in range(self.rules.patience):
            secure.deadline = self.rules.deadline * min(2 ** (self._doubled + attempt), LONGEST_WAIT)
            gathered = secure.gather(self.deployed.name, number, cohort, size, wanted, content, check)
            if gathered is not None:
                self._doubled = max(0, min(self._doubled + attempt, LONGEST_WAIT.bit_length() - 1) - 1)
                vector, senders = gathered
                total = from_vector(vector, len(senders), like)
                self.uploads.check_sum(total, senders, number, self.ledger.norms)
                self.ledger.note_norms([unweighted_norm(total)])
                return total, senders
            log.warning("round %d: the secure sum failed, trying again", number + 1)
        raise _too_few(number, 0, cohort, wanted)

    def places(self, number: int) -> np.ndarray:
        """Who takes part: drawn from the run's seed, as in the simulator, or by lot where sites must not know."""
        drawn = None if self.privacy is None else self.privacy.secret_cohort()
        if drawn is not None:
            return drawn
        with precision(self.deployed.dtype):
            clients, taken = self.programs.cohort(number)
        return np.sort(clients[taken])

    def _message(self, site: str, number: int, broadcast: ArrayRecord) -> RecordDict:
        """What a site is sent in a round."""
        counted = self.ledger.counted.get(site, NEVER)
        message = RecordDict({"broadcast": broadcast})
        if self.method.absorb is not None and counted not in (NEVER, number - 1):
            message["absorb"] = wire.as_record(wire.named(self.backlog[counted]))
        message["about"] = ConfigRecord(
            {"terms": self.agreement.terms[site].to_json(), "round": number, "counted": counted}
        )
        self.ledger.bits_down += sum(_bits(record) for record in message.array_records.values())
        return message

    @property
    def _empty_sum(self) -> Sums:
        """A sum of no uploads."""
        return jax.tree.map(lambda leaf: leaf[0], self.empty_sums)

    def step(self, number: int, sums: Sums) -> None:
        """The method's step on the sum of the uploads."""
        if self.privacy is not None:
            sums = self.privacy.noised(sums)
            self.ledger.epsilon = self.privacy.spent(number + 1, sums.values)
        with precision(self.deployed.dtype):
            placed = jax.tree.map(lambda leaf: self.programs.placed(np.asarray(leaf)[None]), sums)
            server = self.programs.update(self.server, placed, number)[0]
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.tree.map(np.asarray, server))):
            raise PolyfedError(
                f"round {number + 1}: the server's state would not be finite, so that of round {number} is kept; "
                "`polyfed deploy run` goes on from it"
            )
        self.server = server

    # Checkpoints.

    @property
    def _identity(self) -> dict[str, object]:
        deployed = self.deployed
        return {
            "run": deployed.name,
            "sites": list(deployed.sites),
            "problem": deployed.problem,
            "algorithm": method_to_json(self.method),
            "participation": repr(deployed.participation),
            "seed": deployed.seed,
            "init": deployed.init,
            "dtype": deployed.dtype,
            "compute": deployed.compute,
            **({} if deployed.privacy is None else {"privacy": asdict(deployed.privacy)}),
        }

    def _save(self) -> None:
        """Write the checkpoint of this round, before anybody is asked for the next."""
        nobody = np.zeros(0, np.int32)
        state = {
            "method": jax.tree.map(np.asarray, self.server),
            "backlog": {str(round): tree for round, tree in self.backlog.items()},
        }
        snapshot = Snapshot(state, nobody, nobody, np.zeros(0), [])
        meta = {"identity": self._identity, "ledger": asdict(self.ledger), "backlog": sorted(self.backlog)}
        checkpoints.save(self.folder / "checkpoint", self.ledger.round, snapshot, meta, KEPT_ROUNDS)

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
        snapshot, meta = checkpoints.load(path, like, None)
        with precision(self.deployed.dtype):
            self.server = self.programs.everywhere(snapshot.server["method"])
        self.backlog = {int(round): tree for round, tree in snapshot.server["backlog"].items()}
        self.ledger = Ledger(**meta["ledger"])
        log.info("going on after round %d", self.ledger.round)


@dataclass(frozen=True)
class SiteRound:
    """The parts of a round whose clients are sites: they keep their states, and absorb when they are asked again."""

    server: Coordinator
    number: int

    @property
    def absorbs(self) -> bool:
        return self.server.method.absorb is not None

    def cohort(self) -> list[str]:
        return [self.server.deployed.sites[place] for place in self.server.places(self.number)]

    def local(self, cohort: list[str]) -> tuple[Sums, list[str]]:
        return self.server.collect(self.number, cohort)

    def update(self, cohort: list[str], worked: tuple[Sums, list[str]]) -> list[str]:
        sums, senders = worked
        self.server.step(self.number, sums)
        self.server.ledger.counted |= dict.fromkeys(senders, self.number)
        return senders

    def absorb(self, cohort: list[str], senders: list[str]) -> list[str]:
        server = self.server
        if senders:
            server.backlog[self.number] = server.broadcast
        needed = set(server.ledger.counted.values())
        server.backlog = {round: tree for round, tree in server.backlog.items() if round in needed}
        return senders

    def close(self, cohort: list[str], senders: list[str]) -> list[str]:
        for site in cohort:
            if site not in senders:
                self.server.ledger.note_absence(site)
        self.server.ledger.round = self.number + 1
        return senders


def _too_few(number: int, uploads: int, cohort: list[str], wanted: int) -> PolyfedError:
    return PolyfedError(
        f"round {number + 1}: {uploads} of {len(cohort)} sites answered, at least {wanted} are needed; "
        "`polyfed deploy run` goes on from here"
    )


def _bits(record: ArrayRecord) -> int:
    """The bits of the arrays in a record, as they are serialised."""
    return 8 * sum(len(array.data) for array in record.values())
