"""A site: answers the server's messages from its own rows and its own state."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
from flwr.app import ConfigRecord, RecordDict

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.data import Federation
from polyfed.deploy.protocol import site_facts as facts
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.terms import Terms, architecture
from polyfed.deploy.protocol.wire import Refused
from polyfed.deploy.secure.sums import SecureSite
from polyfed.deploy.site.local_work import SiteWork
from polyfed.deploy.site.state_file import NEVER, Kept, StateFile
from polyfed.engine.checkpoint.tensors import named, save_tree
from polyfed.engine.round.records import as_vector
from polyfed.problem.problem import Problem, precision
from polyfed.studies.newcomers.fitting import DataKind, fitted


@dataclass(frozen=True)
class Allowed:
    """What of a site may leave it beside what the algorithm uploads; the section [allow] of its config."""

    smoothness: bool = True
    """L_i and mu_i, or A_i, where the theory's stepsize is asked for"""
    metrics: bool = False
    """how well its models do on its own rows"""
    model: bool = False
    """its personal model"""
    plain: bool = True
    """uploads that the server can read one by one; false: only those that a secure sum masks"""


@dataclass
class Site:
    """One site: its name, its rows, where it keeps state and models, and what may leave it."""

    name: str
    federation: Federation
    folder: Path
    allow: Allowed = field(default_factory=Allowed)
    measure: bool = True
    """whether it measures its models at the end, for itself"""
    _work: dict[str, SiteWork] = field(default_factory=dict)
    _answer: tuple[Any, RecordDict] | None = None
    """the last round that was worked on, and its answer: for a server that asks again"""
    _secure: SecureSite = field(init=False)

    def __post_init__(self) -> None:
        self._secure = SecureSite(self.name, self.folder / "state" / "summed.json")

    def answer(self, kind: str, content: RecordDict) -> RecordDict:
        """The reply to one of the server's messages: a query of facts, a round to train, or the end to evaluate."""
        given = content.config_records["about"]
        try:
            if kind == "query" and "secure" in given:
                found = self._secure.answer(str(given["secure"]))
                return RecordDict({"about": ConfigRecord({"site": self.name, "secure": found})})
            if kind == "query":
                return self._report(given)
            arrays = {name: wire.as_arrays(record) for name, record in content.array_records.items()}
            if kind == "evaluate":
                return self._finish(given, arrays)
            return self._round(given, arrays)
        except (Refused, PolyfedError) as error:
            return RecordDict({"about": ConfigRecord({"site": self.name, "error": str(error)})})

    def _report(self, given: ConfigRecord) -> RecordDict:
        request = facts.Request(**json.loads(str(given["request"])))
        for name in ("metrics", "model"):
            if request.private and getattr(self.allow, name):
                raise Refused(f"its config lets its {name} leave, which the run's privacy does not cover")
        found = facts.report(self.federation, request)
        if set(request.facts) & set(facts.ON_REQUEST):
            if not self.allow.smoothness:
                raise Refused("its config does not allow smoothness constants to leave")
            assert request.kind is not None
            own = fitted(self.federation, DataKind.from_json(request.kind), request.loss)
            section = request.problem
            found |= facts.measured(Problem(own, architecture(section), request.loss, section.get("l2", 0.0)), request)
        return RecordDict({"about": ConfigRecord({"site": self.name, "facts": json.dumps(found)})})

    def _round(self, given: ConfigRecord, arrays: dict[str, wire.Arrays]) -> RecordDict:
        terms, number = self._terms(given), int(given["round"])  # pyright: ignore[reportArgumentType]
        secure = str(given["secure"]) if "secure" in given else None
        if secure is None and not self.allow.plain:
            raise Refused("its config allows masked uploads only, and the server asks for a plain one")
        asked = (terms.fingerprint, number, int(given["counted"]), secure)  # pyright: ignore[reportArgumentType]
        if self._answer is not None and self._answer[0] == asked:
            return self._answer[1]
        work = self._working(terms)
        broadcast = wire.as_tree(arrays["broadcast"], work.broadcast, "broadcast")
        file = StateFile(self.folder / "state", terms.run, work.start)
        kept = self._settled(work, file, given, arrays, broadcast)
        done = work.local(broadcast, kept.state, number)
        about: dict[str, Any] = {
            "site": self.name,
            "run": terms.run,
            "round": number,
            "fingerprint": terms.fingerprint,
            "good": done.good,
        }
        reply = RecordDict()
        if secure is None:
            about |= {"silent": bool(done.sent.silent), "weight": float(done.sent.weight), "code": ""}
        if done.good and secure is not None:
            words = self._secure.masked(secure, terms.run, number, as_vector(done.sent))
            file.write(kept.sending(number, done.state))
            reply["masked"] = wire.as_record({"words": words})
        elif done.good:
            file.write(kept.sending(number, done.state))
            if not about["silent"]:
                with precision(terms.dtype):
                    upload, about["code"] = wire.encoded(done.sent.values, done.sealed)
                reply["upload"] = wire.as_record(upload)
        reply["about"] = ConfigRecord(about)
        self._answer = asked, reply
        return reply

    def _finish(self, given: ConfigRecord, arrays: dict[str, wire.Arrays]) -> RecordDict:
        """The end of a run: the last counted round is settled, and the site has its model."""
        terms = self._terms(given)
        work = self._working(terms)
        file = StateFile(self.folder / "state", terms.run, work.start)
        kept = self._settled(work, file, given, arrays, None)
        server = wire.as_tree(arrays["server"], work.server, "server")
        model = work.personal(server, kept.state)
        metrics = work.metrics(server, kept.state) if self.measure or self.allow.metrics else {}
        place = self.folder / "models" / terms.run
        place.mkdir(parents=True, exist_ok=True)
        save_tree(place / "personal.safetensors", model)
        write_text(place / "metrics.json", json.dumps(metrics, indent=1) + "\n")
        reply = RecordDict({"about": ConfigRecord({"site": self.name, "fingerprint": terms.fingerprint})})
        if self.allow.metrics and terms.clip is None:
            reply.config_records["about"]["metrics"] = json.dumps(metrics)
        if self.allow.model and terms.clip is None:
            reply["model"] = wire.as_record(named(model))
        return reply

    def _terms(self, given: ConfigRecord) -> Terms:
        terms = Terms.from_json(str(given["terms"]))
        if terms.site != self.name:
            raise Refused(f"a message for site '{terms.site}'")
        return terms

    def _working(self, terms: Terms) -> SiteWork:
        """The programs for these terms; those of the run before are dropped."""
        if terms.fingerprint not in self._work:
            self._work = {terms.fingerprint: SiteWork(self.federation, terms)}
        return self._work[terms.fingerprint]

    def _settled(
        self, work: SiteWork, file: StateFile, given: ConfigRecord, arrays: dict[str, wire.Arrays], broadcast: Any
    ) -> Kept:
        """The state as of the last round that the server counted, on the disk before anything else happens."""
        counted = int(given["counted"])  # pyright: ignore[reportArgumentType]
        kept = file.read()
        if kept is None:
            kept = Kept(work.prepared())
            file.write(kept)
        if "round" in given and int(given["round"]) < max(kept.sent, kept.counted + 1):  # pyright: ignore
            raise Refused(f"a replayed message: of round {int(given['round']) + 1}, which is over")  # pyright: ignore
        if kept.sent != NEVER and kept.sent == counted:
            state = kept.pending
            if work.method.absorb is not None:
                if "absorb" in arrays:
                    broadcast = wire.as_tree(arrays["absorb"], work.broadcast, "absorb")
                state = work.absorbed(broadcast, state, counted)
            kept = kept.settled(state)
            file.write(kept)
        elif kept.sent != NEVER:
            kept = kept.dropped()
        if kept.counted != counted and jax.tree.leaves(kept.state):
            raise Refused(
                f"its state is that of round {kept.counted + 1}, the server counted it last in round {counted + 1}"
            )
        return kept
