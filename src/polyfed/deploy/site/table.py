"""A site's table before the sites have agreed on its columns."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.data.formats.table_rows import TableRows
from polyfed.data.tables.overrides import Override, read_overrides
from polyfed.data.tables.preparation import Preparation
from polyfed.data.tables.sums import SiteSums
from polyfed.deploy.protocol.tables import TableSettings


@dataclass
class SiteTable:
    """The rows of one site, split, and the values of its own hyper-parameters."""

    rows: TableRows
    columns: dict[str, np.ndarray]
    source: dict[str, object]
    _sums: tuple[str, SiteSums] | None = None
    _prepared: dict[str, Federation] = field(default_factory=dict)

    @property
    def training_rows(self) -> int:
        return len(self.rows.parts["train"][0])

    @cached_property
    def digest(self) -> str:
        """Of what its training rows tell of all columns: whatever a server asks about them is of the same rows."""
        told = self.rows.sums(TableSettings().overrides, 1)[0]
        return hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()

    def sums(self, settings: TableSettings) -> SiteSums:
        """What its training rows tell of the columns that are asked for, of those that it has."""
        key = settings.to_json()
        if self._sums is None or self._sums[0] != key:
            wanted = [name for name in self.rows.columns if not settings.features or name in settings.features]
            asked = dataclasses.replace(self.rows, columns=wanted)
            self._sums = key, asked.sums(settings.overrides, settings.min_count)[0]
        return self._sums[1]

    def complete(self, settings: TableSettings) -> bool:
        """Whether the columns that are asked for are numbers without gaps."""
        wanted = [name for name in self.rows.columns if not settings.features or name in settings.features]
        return dataclasses.replace(self.rows, columns=wanted).complete

    def prepared(self, preparation: dict[str, Any] | None) -> Federation:
        """Its rows as features, by the preparation that the sites agreed on; without one they are plain numbers."""
        key = json.dumps(preparation)
        if key not in self._prepared:
            agreed = None if preparation is None else Preparation.from_json(preparation)
            made = self.rows.federation(Federation, agreed, self.source)
            self._prepared = {key: dataclasses.replace(made, columns=self.columns)}
        return self._prepared[key]


def with_own_readings(frame: Any, columns: dict[str, object] | None, where: str) -> Any:
    """The table after what its site alone knows of its columns: words for missing cells, columns that stay unsaid."""
    for name, said in read_overrides(columns).items():
        if name not in frame.columns:
            raise PolyfedError(f"{where}data.columns.{name}: there is no column {name!r}")
        if said == Override(kind="skip"):
            frame = frame.drop(columns=name)
        elif said.missing and said == Override(missing=said.missing):
            words = frame[name].map(lambda value: str(int(value)) if _whole(value) else str(value))
            frame = frame.assign(**{name: frame[name].mask(words.isin(said.missing))})
        else:
            raise PolyfedError(
                f"{where}data.columns.{name}: a site may say which words are missing, or skip; what a column holds, "
                "the sites agree on: [data.columns] of server.toml"
            )
    return frame


def _whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
