"""What a run agrees on before round 1: the sites' facts, the method that follows from them, and each site's terms."""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed.algorithms.contract import Algorithm
from polyfed.algorithms.shared.trust import decided
from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, read_object, write_text
from polyfed.deploy.protocol.bounds import FactBounds, read_facts, refuse_outlier
from polyfed.deploy.protocol.messages import SiteMessenger
from polyfed.deploy.protocol.plain_values import Refused, json_object, plain_values, refusal_in
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.deploy.protocol.site_facts import (
    ALWAYS,
    CLASS_ROWS,
    ON_REQUEST,
    FactRequest,
    MissingFact,
    RowlessProblem,
    SiteFacts,
    blank_federation,
    merged_kind,
)
from polyfed.deploy.protocol.terms import DeployedRun, Terms, method_to_json, own_method
from polyfed.deploy.server.preparation import agreed_preparation
from polyfed.engine.participation import sampling
from polyfed.engine.privacy.mechanism import resolved
from polyfed.engine.simulation import BALANCED
from polyfed.problem.class_weights import balanced
from polyfed.studies.newcomers.fitting import DataKind

log = logging.getLogger("polyfed")


@dataclass(frozen=True)
class Agreement:
    """The resolved method, and the problem without rows that it was resolved with."""

    run: DeployedRun
    method: Algorithm
    problem: RowlessProblem
    kind: DataKind
    rows: dict[str, int]
    """the training rows that each site declared"""
    fewest: int
    """the fewest sites in a sum"""
    secure: bool
    preparation: JsonObject | None = None
    """of the sites' tables, as JSON"""

    @property
    def longest(self) -> int:
        """The training rows of the largest site."""
        return max(self.rows.values())

    @cached_property
    def terms(self) -> dict[str, Terms]:
        return {site: self._terms(place, site) for place, site in enumerate(self.run.sites)}

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        return {site: terms.fingerprint for site, terms in self.terms.items()}

    def _terms(self, place: int, site: str) -> Terms:
        run = self.run
        method = own_method(self.method, place)
        clip = None if run.privacy is None else run.privacy.clip
        noise = 0.0 if run.privacy is None else run.privacy.noise
        shared = (run.problem, self.kind, self.longest, run.seed, run.init, run.dtype, run.compute, clip, noise)
        last = (run.rounds, self.fewest, run.sites, self.secure)
        finish = (run.finish.of(site), run.finish.finetune, method_to_json(run.finish.alone), self.preparation)
        return Terms(run.name, site, method, *shared, *last, *finish)


def reach_agreement(run: DeployedRun, sites: SiteMessenger, folder: Path, rules: FederationRules) -> Agreement:
    """The agreement that follows from the sites' facts; those reported before a restart are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline, bounds = rules.gather, FactBounds(rules.rows, rules.classes)
    file = folder / "facts.json"
    facts: dict[str, SiteFacts] = read_object(file)
    loss, private = run.problem["loss"], run.privacy is not None
    preparation = agreed_preparation(run, sites, folder, rules)
    if set(facts) != set(run.sites):
        request = FactRequest(ALWAYS, loss, run.problem, private=private, preparation=preparation)
        facts = _ask_for_facts(run, sites, request, deadline, bounds)
    if run.problem.get("class_weight") == "balanced":
        run = _balanced(run, sites, facts, deadline, bounds, preparation)
    withheld: PolyfedError | None = None
    while True:
        kind, problem = _rowless_problem(run, facts)
        if withheld is not None:  # without the theory's constants: as for a model that has none
            problem.model = dataclasses.replace(problem.model, design=None)
        try:
            method = run.method
            if private:
                method = resolved(method, problem)
            elif method.resolve is not None:
                method = method.resolve(problem)
            method = decided(method, sampled=not sampling(run.participation, len(run.sites)).full)
            break
        except MissingFact as missing:
            batches = (missing.batch, missing.replace, missing.even)
            about = (loss, run.problem, asdict(kind), *batches)
            request = FactRequest((missing.fact,), *about, preparation=preparation)
            try:
                for site, reported in _ask_for_facts(run, sites, request, deadline, bounds).items():
                    facts[site] |= reported
                _refuse_outlier(facts)
            except PolyfedError as refusal:
                withheld = refusal
                log.warning("%s; going on without the theory's constants", refusal)
        except PolyfedError as error:
            raise (error if withheld is None else PolyfedError(f"{withheld}; {error}")) from None
    write_text(file, json.dumps(facts, indent=1) + "\n")
    rows = {site: reported["rows"][0] for site, reported in facts.items()}
    cohort = sampling(run.participation, len(run.sites)).capacity
    fewest = cohort if rules.minimum is None else min(rules.minimum, cohort)
    return Agreement(run, method, problem, kind, rows, fewest, rules.secure, preparation)


def _refuse_outlier(facts: dict[str, SiteFacts]) -> None:
    try:
        refuse_outlier(
            {site: reported["smoothness"][0] for site, reported in facts.items() if "smoothness" in reported}
        )
    except Refused as refusal:
        raise PolyfedError(str(refusal)) from None


def _balanced(
    run: DeployedRun,
    sites: SiteMessenger,
    facts: dict[str, SiteFacts],
    deadline: float,
    bounds: FactBounds,
    preparation: JsonObject | None,
) -> DeployedRun:
    """The run with the class weights that follow from the rows of all sites in place of "balanced"."""
    if run.privacy is not None:
        raise PolyfedError(BALANCED)
    kind = merged_kind(run.sites, [DataKind.from_json(facts[site]["kind"]) for site in run.sites], run.problem["loss"])
    if any(CLASS_ROWS not in reported for reported in facts.values()):
        unweighted = {key: value for key, value in run.problem.items() if key != "class_weight"}
        request = FactRequest((CLASS_ROWS,), run.problem["loss"], unweighted, asdict(kind), preparation=preparation)
        for site, reported in _ask_for_facts(run, sites, request, deadline, bounds).items():
            facts[site] |= reported
            if len(reported[CLASS_ROWS]) != kind.classes or sum(reported[CLASS_ROWS]) != facts[site]["rows"][0]:
                raise PolyfedError(
                    f"site '{site}' reports rows by class that are not its {facts[site]['rows'][0]} rows"
                )
    rows = np.sum([facts[site].get(CLASS_ROWS, []) for site in run.sites], axis=0)
    return dataclasses.replace(run, problem={**run.problem, "class_weight": balanced(rows).tolist()})


def _ask_for_facts(
    run: DeployedRun, sites: SiteMessenger, request: FactRequest, deadline: float, bounds: FactBounds
) -> JsonObject:
    """What was asked for of every site, as JSON; the run cannot start without one of them."""
    facts: JsonObject = {}
    refusals: dict[str, str] = {}

    def take(site: str, content: RecordDict) -> str | None:
        values = plain_values(content)
        try:
            why = refusal_in(values)
            if why is not None or "facts" not in values:
                raise Refused(why or "it reported nothing")
            facts[site] = read_facts(json_object(values, "facts"), request.facts, bounds)
        except Refused as refusal:
            refusals[site] = str(refusal)
        return refusals.get(site)

    message = RecordDict({"about": ConfigRecord({"request": request.to_json()})})
    sites.ask(run.sites, lambda _: message, "query", deadline=deadline, take=take)
    for site in run.sites:
        if site not in facts:
            why = refusals.get(site, f"it did not answer within {deadline:g} seconds")
            raise PolyfedError(f"site '{site}' does not take part: {why}")
    return facts


def _rowless_problem(run: DeployedRun, facts: dict[str, SiteFacts]) -> tuple[DataKind, RowlessProblem]:
    """The whole problem without rows. Sites that do not fit together are named."""
    loss = run.problem["loss"]
    each = [facts[site] for site in run.sites]
    kind = merged_kind(run.sites, [DataKind.from_json(one["kind"]) for one in each], loss)
    shared = set.intersection(*(set(one["columns"]) for one in each))
    columns = {name: np.array([one["columns"][name] for one in each]) for name in sorted(shared)}
    reported = {
        name: np.array([one.get(name) for one in each]) for name in ON_REQUEST if all(name in one for one in each)
    }
    federation = blank_federation(run.sites, kind, [one["rows"] for one in each], columns)
    about = (run.problem.get("l2", 0.0), run.problem.get("class_weight"))
    return kind, RowlessProblem(federation, run.architecture, loss, *about, reported)
