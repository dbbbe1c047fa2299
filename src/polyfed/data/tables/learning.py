"""The preparation that follows from all sites' sums: a pure function, the same in simulation and deployment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.tables.cells import PARTS, is_number
from polyfed.data.tables.columns import Category, Column, Moment, Number, Skipped, YesNo
from polyfed.data.tables.overrides import Override, check_names
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.schema import CHOSEN, ColumnSchema, Layout, SiteSchema, added, agreed_layout
from polyfed.data.tables.sums import MOSTLY, ColumnSums, SiteSums

MOST = 100
"""The most categories of a column; those with fewer rows are "other"."""
SOME = 0.5
"""The share of rows whose word another row of the site has, too, for words to be categories."""
SENTENCE = 3
"""Blank-separated words in a cell, on average, that make it free text."""
FEW_WORDS = 3
"""Words that may stand among numbers, and count as missing there, such as "refused"."""
MANY_NUMBERS = 20
"""Different words at a site, on average, above which whole numbers with words among them are no categories."""
PER_NAME = 20
"""A column that is named like an identifier, and has fewer rows than this for each value, is one."""
IDENTIFIER = re.compile(r"(^|_)(id|ids|uuid|guid|rowid|key|index|idx|nr|number)$")


def learn(sites: Sequence[SiteSums], overrides: Mapping[str, Override] | None = None) -> Preparation:
    """The preparation of all columns that any site has, in the order in which they first appear."""
    schemas = [SiteSchema.of(site) for site in sites]
    layout = agreed_layout(schemas)
    return learn_together(schemas, layout, added(map(layout.vector, sites)), overrides)


def learn_together(
    schemas: Sequence[SiteSchema], layout: Layout, total: np.ndarray, overrides: Mapping[str, Override] | None = None
) -> Preparation:
    """The preparation that follows from what sites say in words, and from the sum of their numbers."""
    overrides = overrides or {}
    sums = layout.totals(total)
    names = list(sums.columns)
    check_names(overrides, names)
    columns, notes = [], []
    for column in layout.columns:
        name = column.name
        sites = [schema.columns.get(name, ColumnSchema(False)) for schema in schemas]
        about = _Column(name, sums.rows, sums.columns[name], sites, column.formats)
        columns.append(about.decided(overrides.get(name, Override())))
        notes += about.notes
    lacking = {
        schema.site: tuple(n for n in names if not schema.columns.get(n, ColumnSchema(False)).present)
        for schema in schemas
    }
    preparation = Preparation(tuple(columns), {site: gone for site, gone in lacking.items() if gone}, tuple(notes))
    if not preparation.feature_names:
        raise PolyfedError("no column can be used: " + "; ".join(f"{c.name!r}: {c.why}" for c in preparation.left_out))
    return preparation


@dataclass
class _Column:
    """One column over all sites."""

    name: str
    rows: int
    total: ColumnSums
    sites: list[ColumnSchema]
    formats: Sequence[str]
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        total = self.total
        self.present, self.distinct, self.repeated, self.length = (
            total.present,
            total.distinct,
            total.repeated,
            total.length,
        )
        self.numbers, self.whole, self.yes, self.no = total.numbers, total.whole, total.yes, total.no
        self.moments = total.moments.get(CHOSEN, {})

    def decided(self, said: Override) -> Column:
        """The column as it is said to be, or as its cells look."""
        if said.kind == "skip":
            return Skipped(self.name, "as asked")
        if not self.present:
            return Skipped(self.name, "empty in every training row")
        if said.kind == "date":
            return self._date(said)
        if said.kind is not None:
            return {"number": self._number, "yes/no": self._yes_no, "category": self._category}[said.kind](said)
        enough = MOSTLY * self.present
        if self.numbers.count >= enough:
            if self.yes + self.no == self.numbers.count:
                return self._yes_no(said)
            return self._number(said) if (why := self._numbered()) is None else Skipped(self.name, why)
        if self.formats and self.moments[PARTS[-1]].count >= enough:
            return self._date(said)
        if self._numbers_with_words():
            return self._number(said)
        if self.yes + self.no >= enough:
            return self._yes_no(said)
        return self._words(said)

    def _words(self, said: Override) -> Column:
        if IDENTIFIER.search(_plain(self.name)) and self.present < PER_NAME * self.distinct:
            return Skipped(self.name, "an identifier, by its name and its many values")
        if self.repeated >= SOME * self.present:
            return self._category(said)
        why = "free text" if self.length >= SENTENCE * self.present else "an identifier: nearly every row has its own"
        return Skipped(self.name, why)

    def _numbers_with_words(self) -> bool:
        """Whether most cells are numbers, and nearly all others one of a few words that stand for a missing one."""
        sites = sum(site.present for site in self.sites)
        several = self.whole < self.numbers.count or self.distinct > MANY_NUMBERS * sites
        words = sorted((n for word, n in self.total.counts.items() if not is_number(word)), reverse=True)
        read = self.numbers.count + sum(words[:FEW_WORDS])
        return several and self.numbers.count >= SOME * self.present and read >= MOSTLY * self.present

    def _numbered(self) -> str | None:
        """Why whole numbers are an identifier, if they are."""
        if self.whole < self.numbers.count or not self.distinct:
            return None
        if IDENTIFIER.search(_plain(self.name)) and self.numbers.count < PER_NAME * self.distinct:
            return "an identifier, by its name and its many values"
        if self.distinct == self.numbers.count and any(site.many for site in self.sites):
            return "an identifier: whole numbers, all different"
        return None

    def _missing(self, read: int) -> bool:
        """Whether rows are missing. Cells that cannot be read are reported."""
        if read < self.present:
            cells = self.present - read
            self.notes.append(
                f"column {self.name!r}: {cells:,} of {self.present:,} cells cannot be read and are missing"
            )
        return read < self.rows

    def _number(self, said: Override) -> Column:
        sums = self.numbers
        if not sums.count:
            return Skipped(self.name, "no cell is a number")
        indicator = self._missing(sums.count)
        if not sums.deviation and not indicator:
            return Skipped(self.name, "the same in every training row")
        fill = None if said.fill is None else float(said.fill)
        return Number(self.name, said.missing, indicator, sums.mean, sums.deviation, fill)

    def _yes_no(self, said: Override) -> Column:
        read = self.yes + self.no
        indicator = self._missing(read)
        if not indicator and not (self.yes and self.no):
            return Skipped(self.name, "the same in every training row")
        if said.fill is None:
            return YesNo(self.name, said.missing, indicator, float(self.yes > self.no))
        return YesNo(self.name, said.missing, indicator, float(str(said.fill).lower() in ("1", "yes", "true")), True)

    def _category(self, said: Override) -> Column:
        counts = Counter(self.total.counts)
        ranked = sorted(counts, key=lambda value: (-counts[value], value))
        kept = said.values or tuple(sorted(ranked[:MOST]))
        indicator, others = self.present < self.rows, self.present - sum(counts[value] for value in kept)
        if not kept:
            return Skipped(self.name, "no value that enough rows share")
        if len(kept) == 1 and not indicator:
            if not others:
                return Skipped(self.name, "the same in every training row")
            if self.distinct == sum(site.present for site in self.sites):  # a site with few rows does not name its word
                return Skipped(self.name, "the same in all training rows of each site")
        commonest = ranked[0] if said.fill is None and ranked else str(said.fill)
        return Category(self.name, said.missing, indicator, kept, others > 0, commonest, said.fill is not None)

    def _date(self, said: Override) -> Column:
        if not self.formats:
            return Skipped(self.name, "no cell is a date")
        parts, first = self.moments, self.formats[0]
        read = parts[PARTS[-1]].count
        also = [format for site in self.sites for format in site.exact if _ambiguous(first, format)]
        if also:
            self.notes.append(
                f"column {self.name!r}: dates are read as {first}, but {also[0]} fits as well; "
                f"columns.{self.name}.format decides"
            )
        indicator = self._missing(read)
        varying = {part.split()[0] for part, sums in parts.items() if sums.deviation > 1e-9}
        kept = tuple(part for part in PARTS if part.split()[0] in varying)
        if not kept:
            return Skipped(self.name, "the same in every training row")
        means, scale = tuple(parts[part].mean for part in kept), parts["year"].deviation or 1.0
        return Moment(self.name, said.missing, indicator, tuple(self.formats), kept, means, scale)


def _ambiguous(one: str, other: str) -> bool:
    """Whether the two differ in the order of day and month alone."""
    return one != other and sorted(one) == sorted(other)


def _plain(name: str) -> str:
    """A column's name in words joined by underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).lower().strip("_")
