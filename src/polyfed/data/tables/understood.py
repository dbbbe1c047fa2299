"""What was understood of a table, column by column and site by site, as its training rows show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyfed.core.files import JsonObject
from polyfed.data.tables.columns import Category, Used

if TYPE_CHECKING:
    from polyfed.data.federation import Federation


@dataclass(frozen=True)
class AtSite:
    """A column at one site."""

    site: str
    missing: float
    """the share of its rows that lack it"""
    shift: float | None
    """its distance from the other sites: of categories the total variation distance, from 0 to 1; else the difference
    of means in standard deviations of all rows (of several features their root mean square)"""


@dataclass(frozen=True)
class Understood:
    """A column: what it holds, how many features it became, and how the sites differ in it."""

    column: str
    kind: str
    features: int
    why: str | None
    """why it is left out, if it is"""
    missing: float
    sites: tuple[AtSite, ...] = ()

    @property
    def farthest(self) -> AtSite | None:
        """The site that differs most from the others."""
        known = [site for site in self.sites if site.shift is not None]
        return max(known, key=lambda site: abs(site.shift or 0.0)) if known else None

    @property
    def emptiest(self) -> AtSite | None:
        """The site that lacks it most, if any does."""
        worst = max(self.sites, key=lambda site: site.missing, default=None)
        return worst if worst is not None and worst.missing > 0 else None


def understood(federation: Federation) -> list[Understood]:
    """Every column of the table, in its order; nothing for a federation that is not of a table."""
    preparation, train = federation.preparation, federation.train
    if preparation is None:
        return []
    owner = np.repeat(np.arange(len(federation)), train.sizes)
    used = {column.name: _used(federation, column, train.x[:, place], owner) for column, place in preparation.blocks()}
    left_out = {column.name: Understood(column.name, "skip", 0, column.why, np.nan) for column in preparation.left_out}
    return [(used | left_out)[column.name] for column in preparation.columns]


def by_site(columns: list[Understood]) -> dict[str, dict[str, JsonObject]]:
    """{site: {column: its kind, missing share and shift}}, of the columns that are used."""
    table: dict[str, dict[str, JsonObject]] = {}
    for column in columns:
        for at in column.sites:
            facts = {"kind": column.kind, "missing": at.missing, "shift": at.shift}
            table.setdefault(at.site, {})[column.column] = facts
    return table


def _used(federation: Federation, column: Used, features: np.ndarray, owner: np.ndarray) -> Understood:
    gone = features[:, -1] > 0 if column.indicator else np.zeros(len(features), bool)
    values = features[:, :-1] if column.indicator else features
    sites = []
    for i, name in enumerate(federation.clients):
        own = owner == i
        shift = _shift(values[own & ~gone], values[~own & ~gone], isinstance(column, Category))
        sites.append(AtSite(name, float(gone[own].mean()), shift))
    return Understood(column.name, column.kind, features.shape[1], None, float(gone.mean()), tuple(sites))


def _shift(own: np.ndarray, others: np.ndarray, category: bool) -> float | None:
    if not len(own) or not len(others) or not own.shape[1]:
        return None
    difference = own.mean(axis=0) - others.mean(axis=0)
    if category:
        unnamed = abs(difference.sum())  # of rows that have none of the categories
        return float(0.5 * (np.abs(difference).sum() + unnamed))
    spread = np.concatenate([own, others]).std(axis=0)
    ratio = np.divide(difference, spread, out=np.zeros_like(difference), where=spread > 0)
    return float(ratio[0]) if len(ratio) == 1 else float(np.sqrt(np.mean(ratio**2)))
