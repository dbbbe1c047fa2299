"""A site that comes after training: its model follows from the published server and its own rows. Nothing leaves it."""

from __future__ import annotations

import json
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.core.files import read_object
from polyfed.data import Federation
from polyfed.deploy.server.published import PREPARATION_FILE, PROBLEM_FILE
from polyfed.deploy.site.table import SiteTable
from polyfed.studies.newcomers import Newcomers, personalize
from polyfed.studies.newcomers.trained import FOLDER, Trained, restored


def read_published(path: Path) -> Trained:
    """The `server/` that a run across sites published, or the run's folder."""
    place = _server(path)
    if not (place / PROBLEM_FILE).is_file():
        raise PolyfedError(f"{path}: no published server here, expected {PROBLEM_FILE} as in runs/NAME/{FOLDER}")
    try:
        return restored(place, json.loads((place / PROBLEM_FILE).read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PolyfedError(f"{place}: cannot be read: {error}") from None


def personalize_new_site(published: Path, rows: Federation | SiteTable, steps: int | None = None) -> Newcomers:
    """The model of a site that took part in no round, by the method's own rule; tables are prepared as the run's."""
    trained = read_published(published)
    if isinstance(rows, SiteTable):
        file = _server(published) / PREPARATION_FILE
        rows = rows.prepared(read_object(file) or None)
    return personalize(trained, rows, steps=steps)


def _server(path: Path) -> Path:
    return path / FOLDER if (path / FOLDER / PROBLEM_FILE).is_file() else path
