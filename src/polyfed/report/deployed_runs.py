"""The page of runs across sites, from what the server was told, or from what a site keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.report.deployed_page import Outcome, write_deployed_page

AT_SERVER, AT_SITE = "outcomes.json", "outcome.json"


def outcome_files(path: Path) -> list[Path]:
    """What deployed runs have left at or below a path: a server's folder, a site's, or one run of either."""
    if (path / "finished.json").is_file() and not (path / AT_SERVER).is_file():
        raise PolyfedError(f"{path}: no site let its metrics leave (allow.metrics in site.toml)")
    places = ("", "runs/*/", "models/*/")
    return sorted(file for name in (AT_SERVER, AT_SITE) for place in places for file in path.glob(f"{place}{name}"))


def write_deployed_report(files: Sequence[Path], output: Path) -> None:
    """One page over all of their sites."""
    outcomes: list[Outcome] = []
    for file in files:
        try:
            given = json.loads(file.read_text())
            listed = [given] if file.name == AT_SITE else list(given.values())
            outcomes += [Outcome.from_json(about) for about in listed]
        except (OSError, ValueError, AttributeError) as error:
            raise PolyfedError(f"{file}: cannot be read: {error}") from None
    title = " and ".join(dict.fromkeys(f"the run {outcome.run}" for outcome in outcomes))
    write_deployed_page(outcomes, output, title=title)
