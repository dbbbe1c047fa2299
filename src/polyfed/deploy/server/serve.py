"""One run, with checkpoints in the server's folder."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path

from polyfed.core.files import write_text
from polyfed.deploy.protocol.messages import SiteGrid
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.server.ledger import Ledger
from polyfed.deploy.server.progress import ProgressFile
from polyfed.deploy.settings import server_settings

log = logging.getLogger("polyfed")


def serve(grid: SiteGrid, settings: str, folder: Path) -> None:
    """Carry out the run that `settings` (JSON) describes, or go on with it."""
    _, run, rules = server_settings(json.loads(settings), "server.toml")
    place = folder / "runs" / run.name
    place.mkdir(parents=True, exist_ok=True)
    progress = ProgressFile(place / "progress.jsonl")

    def after_round(ledger: Ledger, sites: list[str]) -> None:
        progress.add(ledger.line(run, sites))
        log.info("round %d of %d: %s", ledger.round, run.rounds, ", ".join(sites))

    try:
        Coordinator(run, grid, place, rules, after_round).run()
    except Exception as error:
        with suppress(OSError):  # the disk may be full, which may be why
            write_text(place / "stopped.txt", f"{error}\n")
        log.error("%s", error)
        raise
    (place / "stopped.txt").unlink(missing_ok=True)
    log.info("the run '%s' is complete", run.name)
