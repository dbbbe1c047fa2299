"""What Flower's server process does: one run over its grid, with checkpoints in the server's folder."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.serverapp import Grid

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.server.ledger import Ledger
from polyfed.deploy.settings import server_settings

FOLDER = "POLYFED_SERVER_FOLDER"
"""The environment variable with the server's folder."""
CURRENT = "current.json"
"""The settings of a run that has not ended: a server that is started again goes on with it."""


def serve(grid: Grid, settings: str) -> None:
    """Carry out the run that `settings` (JSON) describes, or go on with it."""
    _end_with_parent(os.getppid())
    folder = Path(os.environ[FOLDER])
    log = logging.getLogger("polyfed")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))
    _, run, rules = server_settings(json.loads(settings), "server.toml")
    place = folder / "runs" / run.name
    place.mkdir(parents=True, exist_ok=True)
    write_text(folder / CURRENT, settings)
    progress = place / "progress.jsonl"

    def after_round(ledger: Ledger, sites: list[str]) -> None:
        with progress.open("a") as file:
            file.write(json.dumps(ledger.line(run, sites)) + "\n")
        log.info("round %d of %d: %s", ledger.round, run.rounds, ", ".join(sites))

    try:
        with _locked(place / "lock"):
            Coordinator(run, grid, place, rules, after_round).run()
    except PolyfedError as error:
        (folder / CURRENT).unlink(missing_ok=True)
        (place / "stopped.txt").write_text(f"{error}\n")
        log.error("%s", error)
        raise
    (place / "stopped.txt").unlink(missing_ok=True)
    (folder / CURRENT).unlink(missing_ok=True)
    log.info("the run '%s' is complete", run.name)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Within it, no other process has this run. One that a killed server left behind is waited for."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_with_parent(parent: int) -> None:
    """End this process when its parent is gone: without a server it could only wait, and would keep the run's lock."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
