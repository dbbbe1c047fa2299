"""A site that comes after training: its model follows from the published server and its own rows. Nothing leaves it."""

from __future__ import annotations

import json
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.data import Federation
from polyfed.deploy.server.coordinator import PROBLEM_FILE
from polyfed.studies.newcomers import Newcomers, personalize
from polyfed.studies.newcomers.trained import FOLDER, Trained, restored


def read_published(path: Path) -> Trained:
    """The `server/` that a run across sites published, or the run's folder."""
    place = path / FOLDER if (path / FOLDER / PROBLEM_FILE).is_file() else path
    if not (place / PROBLEM_FILE).is_file():
        raise PolyfedError(f"{path}: no published server here, expected {PROBLEM_FILE} as in runs/NAME/{FOLDER}")
    try:
        return restored(place, json.loads((place / PROBLEM_FILE).read_text()))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PolyfedError(f"{place}: cannot be read: {error}") from None


def personalize_new_site(published: Path, rows: Federation, steps: int | None = None) -> Newcomers:
    """The model of a site that took part in no round, by the method's own rule."""
    return personalize(read_published(published), rows, steps=steps)
