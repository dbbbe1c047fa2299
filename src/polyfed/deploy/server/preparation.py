"""The preparation of the sites' tables, before anything else is agreed on: words first, then one sum over all sites."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed.core.errors import PolyfedError
from polyfed.core.files import JsonObject, read_object, write_text
from polyfed.data.tables.learning import learn_together
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.schema import Layout, SiteSchema, added, agreed_layout
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import SiteMessenger
from polyfed.deploy.protocol.plain_values import Refused, json_object, plain_values, refusal_in
from polyfed.deploy.protocol.rules import FederationRules
from polyfed.deploy.protocol.tables import LARGEST_SUM, TableSchema, TableSettings, check_sums, read_schema
from polyfed.deploy.protocol.terms import DeployedRun
from polyfed.deploy.secure.phases import MOST_WORDS
from polyfed.deploy.secure.server_sum import SecureSumServer

log = logging.getLogger("polyfed")
FILE = "preparation.json"


def agreed_preparation(
    run: DeployedRun, sites: SiteMessenger, folder: Path, rules: FederationRules
) -> JsonObject | None:
    """The preparation as JSON, None where sites have no tables; one that was agreed on before a restart stays."""
    asked = {"sites": list(run.sites), "settings": json.loads(run.tables.to_json()), "secure": rules.secure}
    file = folder / FILE
    kept = read_object(file)
    if kept.get("asked") == asked and "preparation" in kept:
        return kept["preparation"]
    found = _Tables(run, sites, rules).preparation()
    preparation = None if found is None else found.to_json()
    for line in [] if found is None else found.told():
        log.info("%s", line)
    for site, lacking in (found.lacking if found is not None else {}).items():
        log.warning("site '%s' has no %s, which other sites have", site, _listed(lacking))
    write_text(file, json.dumps({"asked": asked, "preparation": preparation}, indent=1) + "\n")
    return preparation


class _Tables:
    """The questions about the sites' tables."""

    def __init__(self, run: DeployedRun, sites: SiteMessenger, rules: FederationRules) -> None:
        self.run, self.sites, self.rules, self.settings = run, sites, rules, run.tables

    def preparation(self) -> Preparation | None:
        known = self._schemas()
        tables = {site: table for site, table in known.items() if table is not None}
        if not tables:
            return None
        for site in known:
            if site not in tables:
                raise PolyfedError(
                    f"site '{site}' has rows without names of columns, site '{next(iter(tables))}' a table"
                )
        layout = agreed_layout([table.schema for table in tables.values()], self.settings.features)
        names = [column.name for column in layout.columns]
        for name in self.settings.features:
            if name not in names:
                raise PolyfedError(f"data.features: no site has the column {name!r}")
        if not _needed(tables, names, self.settings):
            return Preparation.plain(names)
        if self.run.privacy is not None:
            raise PolyfedError(
                "[privacy] does not cover the sums that a preparation of tables is learned from; give sites columns of "
                "numbers without gaps"
            )
        schemas = [table.schema for table in tables.values()]
        return learn_together(schemas, layout, self._total(layout), self.settings.overrides)

    def _schemas(self) -> dict[str, TableSchema | None]:
        schemas: dict[str, TableSchema | None] = {}
        why: dict[str, str] = {}

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                values = _answered(reply)
                schemas[site] = read_schema(site, json_object(values, "schema"))
            except Refused as refusal:
                why[site] = str(refusal)
            return why.get(site)

        message = RecordDict({"about": ConfigRecord({"schema": self.settings.to_json()})})
        self.sites.ask(self.run.sites, lambda _: message, "query", deadline=self.rules.gather, take=take)
        self._refuse_absent(schemas, why)
        return {site: schemas[site] for site in self.run.sites}

    def _total(self, layout: Layout) -> np.ndarray:
        about: JsonObject = {"sums": json.dumps(layout.to_json()), "schema": self.settings.to_json()}
        if self.rules.secure:
            return self._masked_total(layout, about)
        vectors: dict[str, np.ndarray] = {}
        why: dict[str, str] = {}

        def take(site: str, reply: RecordDict) -> str | None:
            try:
                _answered(reply)
                arrays = wire.as_arrays(reply.array_records["sums"]) if "sums" in reply else {}
                if set(arrays) != {"vector"}:
                    raise Refused("it reported no sums")
                check_sums(arrays["vector"], layout, self.rules.rows)
                vectors[site] = arrays["vector"]
            except Refused as refusal:
                why[site] = str(refusal)
            return why.get(site)

        message = RecordDict({"about": ConfigRecord(about)})
        self.sites.ask(self.run.sites, lambda _: message, "query", deadline=self.rules.gather, take=take)
        self._refuse_absent(vectors, why)
        return added(vectors[site] for site in self.run.sites)

    def _masked_total(self, layout: Layout, about: JsonObject) -> np.ndarray:
        """The same sum, of vectors that nobody but their sites sees."""
        secure = SecureSumServer(self.sites, self.rules.gather, LARGEST_SUM, MOST_WORDS)

        def check(site: str, reply: RecordDict) -> None:
            if _answered(reply).get("site") != site:
                raise Refused("an answer in another site's name")

        for _ in range(self.rules.patience):
            found = secure.gather(
                self.run.name,
                0,
                list(self.run.sites),
                layout.size,
                len(self.run.sites),
                lambda _: RecordDict({"about": ConfigRecord(dict(about))}),
                check,
            )
            if found is not None:
                return found[0]
        raise PolyfedError("the sums of the sites' tables could not be added up under masks; the log says why")

    def _refuse_absent(self, answers: JsonObject, why: dict[str, str]) -> None:
        for site in self.run.sites:
            if site not in answers:
                reason = why.get(site, f"it did not answer within {self.rules.gather:g} seconds")
                raise PolyfedError(f"site '{site}' does not take part: {reason}")


def _needed(tables: dict[str, TableSchema], names: list[str], settings: TableSettings) -> bool:
    """Whether columns must be prepared; where that is forbidden, a site that cannot do without is named."""
    lacking = {site: _lacking(table.schema, names) for site, table in tables.items()}
    if settings.prepare is not False:
        gaps = any(lacking.values()) or not all(table.complete for table in tables.values())
        return bool(settings.prepare or settings.columns or gaps)
    for site, table in tables.items():
        if lacking[site]:
            raise PolyfedError(f"site '{site}' has no column {lacking[site][0]!r}, and data.prepare is false")
        if not table.complete:
            raise PolyfedError(
                f"site '{site}' has columns with anything but numbers, or with gaps, and data.prepare is false"
            )
    return False


def _lacking(schema: SiteSchema, names: list[str]) -> list[str]:
    return [name for name in names if name not in schema.columns]


def _answered(reply: RecordDict) -> Any:
    values = plain_values(reply)
    why = refusal_in(values)
    if why is not None:
        raise Refused(why)
    return values


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    return f"column{'s' * (len(names) > 1)} {shown}"
