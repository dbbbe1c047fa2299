"""The parts of an advice that are finished: kept in its folder, so that `--resume` goes on after them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.studies.advice.trials import Trial, read_trial

WRITTEN = ("advice.json", "sites.csv", "methods.csv", "config.toml", "alone.toml", "report.html")
"""What an advice leaves beside its parts."""
PROJECT = "deploy"
"""Where it leaves a project that trains across sites what is advised; without keys."""


@dataclass(frozen=True)
class KeptParts:
    """The folder of an advice, and in `trials` a file for each finished part."""

    folder: Path

    @classmethod
    def begin(cls, folder: Path, identity: str, resume: bool) -> Self:
        """Remove what an earlier call has left; or go on with it, if it was of the same rows and settings."""
        note = folder / "trials" / "begun.json"
        if not resume:
            if (folder / PROJECT / "server" / "certificates").exists():
                raise PolyfedError(
                    f"{folder / PROJECT}: has keys, so it may be in use; move it away, or use another --out"
                )
            for name in ("trials", "models", PROJECT):
                shutil.rmtree(folder / name, ignore_errors=True)
            for name in WRITTEN:
                (folder / name).unlink(missing_ok=True)
            note.parent.mkdir(parents=True)
            write_text(note, json.dumps({"identity": identity}) + "\n")
            return cls(folder)
        if not note.exists():
            raise PolyfedError(f"{folder}: there is nothing here to resume")
        try:
            same = json.loads(note.read_text())["identity"] == identity
        except (OSError, ValueError, KeyError, TypeError):
            raise PolyfedError(f"{note}: is damaged; use --overwrite or another --out") from None
        if not same:
            raise PolyfedError(
                f"{folder}: was begun with other rows, another seed or other settings; use --overwrite or another --out"
            )
        return cls(folder)

    def read(self, place: int) -> Trial | None:
        return read_trial(self._path(place))

    def write(self, place: int, trial: Trial) -> None:
        trial.write(self._path(place))

    def _path(self, place: int) -> Path:
        return self.folder / "trials" / f"{place:02d}.safetensors"
