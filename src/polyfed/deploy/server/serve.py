"""One run over Flower's grid, with checkpoints in the server's folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from flwr.serverapp import Grid

from polyfed.core.files import write_text
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.server.going_back import go_back
from polyfed.deploy.server.ledger import Ledger
from polyfed.deploy.settings import server_settings

log = logging.getLogger("polyfed")
CURRENT = "current.json"
"""The settings of a run that has not ended: a server that is started again goes on with it."""


def serve(grid: Grid, settings: str, folder: Path, back: bool = False) -> None:
    """Carry out the run that `settings` (JSON) describes, or go on with it; `back` drops its last round first."""
    _, run, rules = server_settings(json.loads(settings), "server.toml")
    place = folder / "runs" / run.name
    place.mkdir(parents=True, exist_ok=True)
    if back:
        go_back(place)
    write_text(folder / CURRENT, settings)
    progress = place / "progress.jsonl"

    def after_round(ledger: Ledger, sites: list[str]) -> None:
        with progress.open("a") as file:
            file.write(json.dumps(ledger.line(run, sites)) + "\n")
        log.info("round %d of %d: %s", ledger.round, run.rounds, ", ".join(sites))

    try:
        Coordinator(run, grid, place, rules, after_round).run()
    except Exception as error:
        (folder / CURRENT).unlink(missing_ok=True)
        (place / "stopped.txt").write_text(f"{error}\n")
        log.error("%s", error)
        raise
    (place / "stopped.txt").unlink(missing_ok=True)
    (folder / CURRENT).unlink(missing_ok=True)
    log.info("the run '%s' is complete", run.name)
