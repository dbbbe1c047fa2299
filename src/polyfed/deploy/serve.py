"""What Flower's server process does: one plan over its grid, with checkpoints in the server's folder."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from flwr.serverapp import Grid

from polyfed.deploy.coordinator import Coordinator, Ledger
from polyfed.deploy.settings import server_settings
from polyfed.errors import PolyfedError

FOLDER = "POLYFED_SERVER_FOLDER"
"""The environment's name for the server's folder."""
CURRENT = "current.json"
"""The settings of a run that has not ended: who starts the server again goes on with it."""


def serve(grid: Grid, settings: str) -> None:
    """Run the plan that `settings` (JSON) describes, or go on with it."""
    folder = Path(os.environ[FOLDER])
    log = logging.getLogger("polyfed")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))
    _, plan, conduct = server_settings(json.loads(settings), "server.toml")
    place = folder / "runs" / plan.run
    place.mkdir(parents=True, exist_ok=True)
    (folder / CURRENT).write_text(settings)
    progress = place / "progress.jsonl"

    def tell(ledger: Ledger, sites: list[str]) -> None:
        line = {"round": ledger.round, "of": plan.rounds, "sites": sites, "bits_up": ledger.bits_up}
        with progress.open("a") as file:
            file.write(json.dumps({**line, "bits_down": ledger.bits_down, "seconds": ledger.seconds}) + "\n")
        log.info("round %d of %d: %s", ledger.round, plan.rounds, ", ".join(sites))

    try:
        Coordinator(plan, grid, place, conduct, tell).run()
    except PolyfedError as error:
        (folder / CURRENT).unlink(missing_ok=True)
        (place / "stopped.txt").write_text(f"{error}\n")
        log.error("%s", error)
        raise
    (place / "stopped.txt").unlink(missing_ok=True)
    (folder / CURRENT).unlink(missing_ok=True)
    log.info("the run '%s' is complete", plan.run)
