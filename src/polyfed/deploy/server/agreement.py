"""What a run agrees on before round 1: the sites' facts, the method that follows from them, and each site's terms."""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed.algorithms.contract import Algorithm
from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.protocol import site_facts as facts
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Sites, about
from polyfed.deploy.protocol.site_facts import Outline, Request, Wanted, blank_federation, merged_kind
from polyfed.deploy.protocol.terms import Plan, Terms, own_method
from polyfed.engine.privacy.mechanism import resolved
from polyfed.studies.newcomers.fitting import DataKind

log = logging.getLogger("polyfed")
Facts = dict[str, dict[str, Any]]
"""What each site reported."""


@dataclass(frozen=True)
class Agreement:
    """The resolved method, and the problem without rows that it was resolved by."""

    plan: Plan
    method: Algorithm
    outline: Outline
    kind: DataKind
    longest: int

    @cached_property
    def terms(self) -> dict[str, Terms]:
        return {site: self._terms(place, site) for place, site in enumerate(self.plan.sites)}

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        return {site: terms.fingerprint for site, terms in self.terms.items()}

    def _terms(self, place: int, site: str) -> Terms:
        plan = self.plan
        method = own_method(self.method, place)
        clip = None if plan.privacy is None else plan.privacy.clip
        shared = (plan.problem, self.kind, self.longest, plan.seed, plan.init, plan.dtype, plan.compute, clip)
        return Terms(plan.run, site, method, *shared)


def agree(plan: Plan, sites: Sites, folder: Path, deadline: float) -> Agreement:
    """From what the sites reported, now or before a restart."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "facts.json"
    known: Facts = json.loads(kept.read_text()) if kept.exists() else {}
    loss, private = plan.problem["loss"], plan.privacy is not None
    if set(known) != set(plan.sites):
        known = _gathered(plan, sites, Request(facts.ALWAYS, loss, plan.problem, private=private), deadline)
    kept_back: PolyfedError | None = None
    while True:
        kind, outline = _outline(plan, known)
        if kept_back is not None:  # without the theory's constants: as for a model that has none
            outline.model = dataclasses.replace(outline.model, design=None)
        try:
            method = plan.method
            if private:
                method = resolved(method, outline)
            elif method.resolve is not None:
                method = method.resolve(outline)
            break
        except Wanted as wanted:
            request = Request((wanted.fact,), loss, plan.problem, asdict(kind), wanted.batch)
            try:
                for site, found in _gathered(plan, sites, request, deadline).items():
                    known[site] |= found
            except PolyfedError as refusal:
                kept_back = refusal
                log.warning("%s; going on without the theory's constants", refusal)
        except PolyfedError as error:
            raise (error if kept_back is None else PolyfedError(f"{kept_back}; {error}")) from None
    write_text(kept, json.dumps(known, indent=1) + "\n")
    return Agreement(plan, method, outline, kind, max(found["rows"][0] for found in known.values()))


def _gathered(plan: Plan, sites: Sites, request: Request, deadline: float) -> Facts:
    """Every site's facts; the run cannot start without one of them."""
    found: Facts = {}
    refusals: dict[str, str] = {}

    def take(site: str, content: RecordDict) -> str | None:
        given = about(content)
        if "facts" not in given:
            refusals[site] = str(given.get("error", "it reported nothing"))
            return refusals[site]
        found[site] = json.loads(given["facts"])
        return None

    message = RecordDict({"about": ConfigRecord({"request": wire.as_json(request)})})
    sites.ask(plan.sites, lambda _: message, "query", deadline=deadline, take=take)
    for site in plan.sites:
        if site not in found:
            why = refusals.get(site, f"it did not answer within {deadline:g} seconds")
            raise PolyfedError(f"site '{site}' does not take part: {why}")
    return found


def _outline(plan: Plan, known: Facts) -> tuple[DataKind, Outline]:
    """The whole problem without rows; sites that do not fit together are named."""
    loss = plan.problem["loss"]
    kinds = [DataKind.from_json(known[site]["kind"]) for site in plan.sites]
    kind = merged_kind(plan.sites, kinds, loss)
    rows = [known[site]["rows"] for site in plan.sites]
    shared = set.intersection(*(set(known[site]["columns"]) for site in plan.sites))
    columns = {name: np.array([known[site]["columns"][name] for site in plan.sites]) for name in sorted(shared)}
    reported = {
        name: np.array([known[site][name] for site in plan.sites])
        for name in facts.ON_REQUEST
        if all(name in known[site] for site in plan.sites)
    }
    federation = blank_federation(plan.sites, kind, rows, columns)
    return kind, Outline(federation, plan.architecture, loss, plan.problem.get("l2", 0.0), reported)
