"""A site: answers the server's messages from its own rows and its own state."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import ConfigRecord, ConfigRecordValues, RecordDict

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.core.trees import Tree
from polyfed.data import Federation
from polyfed.data.tables.schema import SiteSchema
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.names import checked_name
from polyfed.deploy.protocol.plain_values import (
    PlainValues,
    Refused,
    json_object,
    plain_values,
    readable,
    text,
    whole_number,
)
from polyfed.deploy.protocol.site_facts import CLASS_ROWS, ON_REQUEST, FactRequest, constant_facts, data_facts
from polyfed.deploy.protocol.tables import TableSchema, TableSettings, read_layout
from polyfed.deploy.protocol.terms import Terms, architecture
from polyfed.deploy.secure.signed_keys import KnownSites
from polyfed.deploy.secure.site_sum import SecureSumSite
from polyfed.deploy.site.local_work import LocalWork
from polyfed.deploy.site.outcome import save_models, site_models, standing, write_outcome
from polyfed.deploy.site.policy import PinnedTerms, RunPolicy
from polyfed.deploy.site.state_file import NEVER, SavedState, StateFile
from polyfed.deploy.site.table import SiteTable
from polyfed.engine.checkpoint.tensors import named
from polyfed.engine.round.records import as_vector
from polyfed.problem.class_weights import class_rows
from polyfed.problem.problem import Problem, precision
from polyfed.studies.newcomers.fitting import DataKind, fitted

log = logging.getLogger("polyfed")


@dataclass(frozen=True)
class SitePolicy:
    """What may leave a site beside what the algorithm uploads; the section [allow] of its config."""

    smoothness: bool = True
    """L_i and mu_i, or A_i, where the theory's stepsize is asked for"""
    class_rows: bool = True
    """how many training rows of each class it has, where class weights are to be balanced"""
    metrics: bool = False
    """how well its models do on its own rows"""
    model: bool = False
    """its personal model"""
    sums: bool = True
    """counts, sums and squares of its columns, and the names of their categories, where tables are to be prepared"""
    plain: bool = True
    """uploads that the server can read one by one; false: only those that a secure sum masks"""


@dataclass
class Site:
    """One site: its name, its rows, where it keeps state and models, and what may leave it."""

    name: str
    federation: Federation | SiteTable
    """its rows: a federation of one, or a table whose columns the sites have yet to agree on"""
    folder: Path
    allow: SitePolicy = field(default_factory=SitePolicy)
    measure: bool = True
    """whether it measures its models at the end, for itself"""
    policy: RunPolicy = field(default_factory=RunPolicy)
    known: KnownSites = field(default_factory=KnownSites)
    """its own key, and those of the other sites that its operator pinned"""
    _work: dict[str, LocalWork] = field(default_factory=dict)
    """the programs of the current run, by the fingerprint of its terms"""
    _last: tuple[tuple[object, ...], RecordDict] | None = None
    """the last question of a round, and the answer: for a server that asks again"""
    _secure: SecureSumSite = field(init=False)
    _pinned: PinnedTerms = field(init=False)

    def __post_init__(self) -> None:
        summed = self.folder / "state" / "summed.json"
        self._secure = SecureSumSite(self.name, summed, self.policy.fewest_sites, self.known)
        self._pinned = PinnedTerms(self.folder)

    def answer(self, kind: str, content: RecordDict) -> RecordDict:
        """The reply to one of the server's messages: a query of facts, a round to train, or the end to evaluate."""
        values = plain_values(content)
        try:
            if kind == "query" and "secure" in values:
                return self._reply(secure=self._secure.answer(text(values, "secure")))
            if "sums" in values:
                return self._sums(values)
            if "schema" in values:
                return self._schema(values)
            if kind == "query":
                return self._report(values)
            arrays = {name: wire.as_arrays(record) for name, record in content.array_records.items()}
            if kind == "evaluate":
                return self._finish(values, arrays)
            return self._round(values, arrays)
        except (Refused, PolyfedError) as error:
            return self._reply(error=str(error))
        except OSError as error:  # a full disk; the server need not know which file it was
            log.error("site '%s': %s", self.name, error)
            return self._reply(error=f"it cannot write: {error.strerror}")
        except Exception as error:  # whatever a message that is none runs into
            log.exception("site '%s': a message could not be answered", self.name)
            return self._reply(error=readable(error))

    def _reply(self, **values: ConfigRecordValues) -> RecordDict:
        return RecordDict({"about": ConfigRecord({"site": self.name, **values})})

    def _report(self, values: PlainValues) -> RecordDict:
        """The facts that the server asks for, if this site lets them leave."""
        request = FactRequest.from_json(text(values, "request"))
        for name in ("metrics", "model"):
            if request.private and getattr(self.allow, name):
                raise Refused(f"its config lets its {name} leave, which the run's privacy does not cover")
        facts = data_facts(self._rows(request.preparation), request.loss)
        report: dict[str, object] = {name: fact for name, fact in facts.items() if name in request.facts}
        if set(request.facts) & set(ON_REQUEST):
            if not self.allow.smoothness:
                raise Refused("its config does not allow smoothness constants to leave")
            problem = self._problem(request)
            report |= constant_facts(problem, request)
        if CLASS_ROWS in request.facts:
            if not self.allow.class_rows:
                raise Refused("its config does not allow the number of rows of each class to leave")
            report[CLASS_ROWS] = class_rows(self._problem(request), 0).tolist()
        return self._reply(facts=json.dumps(report))

    @property
    def training_rows(self) -> int:
        rows = self.federation
        return rows.training_rows if isinstance(rows, SiteTable) else int(rows.train.sizes[0])

    def _rows(self, preparation: dict[str, Any] | None) -> Federation:
        """Its rows as features."""
        if isinstance(self.federation, SiteTable):
            return self.federation.prepared(preparation)
        if preparation is not None:
            raise Refused("a preparation of tables, and its rows are none")
        return self.federation

    def _schema(self, values: PlainValues) -> RecordDict:
        """What this site's table holds, in words."""
        if not isinstance(self.federation, SiteTable):
            return self._reply(schema="{}")
        settings = self._asked(values)
        schema = SiteSchema.of(self.federation.sums(settings))
        return self._reply(schema=TableSchema(self.federation.complete(settings), schema).to_json())

    def _sums(self, values: PlainValues) -> RecordDict:
        """The sums of this site's table, alone or under masks."""
        if not isinstance(self.federation, SiteTable):
            raise Refused("sums of a table, and its rows are none")
        settings, layout = self._asked(values), read_layout(text(values, "sums"))
        secure = text(values, "secure") if "secure" in values else None
        if secure is None and not self.allow.plain:
            raise Refused("its config allows masked sums only, and the server asks for plain ones")
        if self.policy.noise > 0:
            raise Refused("its policy allows private runs only, and noise does not cover sums of tables")
        vector, reply = layout.vector(self.federation.sums(settings)), self._reply()
        if secure is None:
            reply["sums"] = wire.as_record({"vector": vector})
            return reply
        head, what = json_object(values, "secure"), f"tables {self.federation.digest}"
        masked = self._secure.masked(secure, str(head.get("run")), 0, what, vector)
        reply["masked"] = wire.as_record({"words": masked})
        return reply

    def _asked(self, values: PlainValues) -> TableSettings:
        """What the server wants to know of a table, if this site's config lets it leave."""
        settings = TableSettings.from_json(text(values, "schema"))
        if not self.allow.sums:
            raise Refused("its config does not allow the sums and categories of its columns to leave")
        if settings.min_count < self.policy.min_count:
            raise Refused(
                f"its policy names categories of at least {self.policy.min_count} rows, the run asks for "
                f"{settings.min_count}"
            )
        self._pinned.check_tables(settings, self.policy.changes == "ask")
        return settings

    def _problem(self, request: FactRequest) -> Problem:
        """The problem of this site alone, in the labels of the whole federation."""
        if request.kind is None:
            raise Refused("the request says nothing of the federation's labels")
        section = request.problem
        with _refusing("what is asked for does not go with this site's rows"):
            own = fitted(self._rows(request.preparation), DataKind.from_json(request.kind), request.loss)
            about = (section.get("l2", 0.0), section.get("class_weight"))
            return Problem(own, architecture(section), request.loss, *about)

    def _round(self, values: PlainValues, arrays: dict[str, wire.Arrays]) -> RecordDict:
        terms, number = self._terms(values), whole_number(values, "round")
        secure = text(values, "secure") if "secure" in values else None
        if number >= terms.rounds:
            raise Refused(f"round {number + 1} of a run of {terms.rounds} rounds")
        if (secure is not None) != terms.secure:
            raise Refused("whether uploads are masked is not as the terms say")
        if secure is None and not self.allow.plain:
            raise Refused("its config allows masked uploads only, and the server asks for a plain one")
        question = (terms.fingerprint, number, whole_number(values, "counted"), secure)
        if self._last is not None and self._last[0] == question:
            return self._last[1]
        work = self._working(terms)
        broadcast = _sent(arrays, "broadcast", work.broadcast)
        file = StateFile(self.folder / "state", terms.run, work.start, work.pending)
        saved = self._settled(work, file, values, arrays, broadcast)
        done = work.local(broadcast, saved.state, number)
        reply = self._reply(run=terms.run, round=number, fingerprint=terms.fingerprint, good=done.good)
        about, silent = reply.config_records["about"], bool(done.sent.silent)
        if secure is None:
            about.update({"silent": silent, "weight": float(done.sent.weight), "code": ""})
        if done.good and secure is not None:
            if not self._secure.of_roster(terms.roster):
                raise Refused("a secure sum of another roster than the terms'")
            words = self._secure.masked(secure, terms.run, number, terms.computation(number), as_vector(done.sent))
            file.write(saved.sending(number, done.state))
            reply["masked"] = wire.as_record({"words": words})
        elif done.good:
            file.write(saved.sending(number, done.state))
            if not silent:
                with precision(terms.dtype):
                    upload, about["code"] = wire.encode_upload(done.sent.values, done.sealed)
                reply["upload"] = wire.as_record(upload)
        self._last = question, reply
        return reply

    def _finish(self, values: PlainValues, arrays: dict[str, wire.Arrays]) -> RecordDict:
        """The end of a run: the last counted round is settled, and the site has its model."""
        terms = self._terms(values)
        self._last = None
        work = self._working(terms)
        file = StateFile(self.folder / "state", terms.run, work.start, work.pending)
        saved = self._settled(work, file, values, arrays, None)
        server = _sent(arrays, "server", work.server)
        models = site_models(work, server, saved.state, compare=self.measure)
        metrics = work.metrics(server, saved.state) if self.measure or self.allow.metrics else {}
        place = self.folder / "models" / checked_name(terms.run, "the run")
        place.mkdir(parents=True, exist_ok=True)
        save_models(place, models, work, self._rows(terms.preparation))
        outcome = standing(work, models) if self.measure else None
        if outcome is not None:
            write_outcome(place, outcome)
        write_text(place / "metrics.json", json.dumps(metrics, indent=1) + "\n")
        reply = self._reply(fingerprint=terms.fingerprint)
        if self.allow.metrics and terms.clip is None:
            reply.config_records["about"]["metrics"] = json.dumps(_finite(metrics))
            if outcome is not None:
                reply.config_records["about"]["outcome"] = json.dumps(asdict(outcome))
        if self.allow.model and terms.clip is None:
            reply["model"] = wire.as_record(named(models[terms.deploy]))
        return reply

    def _terms(self, values: PlainValues) -> Terms:
        """The terms of a message, if this site agrees to them."""
        terms = Terms.from_json(text(values, "terms"))
        if terms.site != self.name:
            raise Refused(f"a message for site '{terms.site}'")
        if terms.fingerprint not in self._work:
            self.policy.check(terms, self.training_rows)
            if self.allow.model:
                self.policy.check_model(terms, self.training_rows)
            self._pinned.check(terms, self.policy.changes == "ask")
        return terms

    def _working(self, terms: Terms) -> LocalWork:
        """The programs for these terms; those of the run before are dropped."""
        if terms.fingerprint not in self._work:
            with _refusing("the terms do not go with this site's rows"):
                self._work = {terms.fingerprint: LocalWork(self._rows(terms.preparation), terms)}
        return self._work[terms.fingerprint]

    def _settled(
        self, work: LocalWork, file: StateFile, values: PlainValues, arrays: dict[str, wire.Arrays], broadcast: Tree
    ) -> SavedState:
        """The state as of the last round that the server counted. It is on the disk before anything else happens."""
        counted = whole_number(values, "counted")
        saved = file.read(counted)
        if saved is None:
            saved = SavedState(work.prepared())
            file.write(saved)
        if "round" in values:
            number = whole_number(values, "round")
            if number < max(saved.sent, saved.counted + 1):
                raise Refused(f"a replayed message: of round {number + 1}, which is over")
        if saved.sent != NEVER and saved.sent == counted:
            state = saved.pending
            if work.method.absorb is not None:
                if "absorb" in arrays or broadcast is None:
                    broadcast = _sent(arrays, "absorb", work.broadcast)
                state = work.absorbed(broadcast, state, counted)
            before, saved = saved.counted, saved.settled(state)
            file.keep_before(before)
            file.write(saved)
        elif saved.sent != NEVER:
            saved = saved.dropped()
        if saved.counted != counted and jax.tree.leaves(saved.state):
            raise Refused(
                f"its state is that of round {saved.counted + 1}, the server counted it last in round {counted + 1}"
            )
        return saved


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Within it, a model that cannot be built is a refusal: its parts are each of their type, but not of one piece."""
    try:
        yield
    except (Refused, PolyfedError):
        raise
    except Exception as error:
        raise Refused(f"{what} ({type(error).__name__})") from None


def _sent(arrays: dict[str, wire.Arrays], name: str, like: Tree) -> Tree:
    """What the server sent under this name, if it is like this and finite."""
    if name not in arrays:
        raise Refused(f"the message lacks {name}")
    tree = wire.as_tree(arrays[name], like, name)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)):
        raise Refused(f"{name} is not finite")
    return tree


def _finite(metrics: dict[str, dict[str, dict[str, float]]]) -> object:
    """Metrics without those that are not finite, as of a split without rows."""
    return {
        model: {split: {n: v for n, v in values.items() if isfinite(v)} for split, values in splits.items()}
        for model, splits in metrics.items()
    }
