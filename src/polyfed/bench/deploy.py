"""A round across three sites on loopback, beside a bare round of Flower's own programs."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

from polyfed.bench.bare_flower import bare_rounds
from polyfed.core.errors import PolyfedError
from polyfed.deploy.network.processes import free_port, stop_together
from polyfed.deploy.network.running_site import RunningSite
from polyfed.deploy.network.server_link import ServerLink
from polyfed.deploy.project import make_project
from polyfed.deploy.settings import site_settings

SITES = ["north", "south", "west"]
PATIENCE = 600.0


def bench_deploy(rounds: int = 5, secure: bool = False) -> dict[str, object]:
    """Seconds of each round: bare, ours, bare again. The first of ours includes the sites' compilation."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place) / "project"
        make_project(folder, SITES, "127.0.0.1", free_port(), example=True)
        path = folder / "server" / "server.toml"
        text = path.read_text().replace("rounds = 10", f"rounds = {rounds + 1}")
        path.write_text(text.replace("secure = false", "secure = true") if secure else text)
        before = bare_rounds(Path(place) / "before", len(SITES), rounds)
        link = ServerLink(folder / "server")
        server = stack.enter_context(link.start())
        nodes = [RunningSite(site_settings(folder / site)) for site in SITES]
        stack.callback(lambda: stop_together(node.stop for node in nodes))
        _await(link, link.submit())
        ends = [0.0, *(row["seconds"] for row in link.progress())]
        ours = [end - start for start, end in pairwise(ends[1:])]
        stop_together(node.stop for node in nodes)
        server.stop()
        after = bare_rounds(Path(place) / "after", len(SITES), rounds)
    bare = median(before + after)
    return {
        "bare_round_seconds": bare,
        "polyfed_round_seconds": median(ours),
        "polyfed_over_bare_seconds": median(ours) - bare,
        "polyfed_first_round_seconds": ends[1],
        "rounds": {"bare_before": before, "polyfed": ours, "bare_after": after},
    }


def _await(link: ServerLink, request: str) -> None:
    end = time.monotonic() + PATIENCE
    while (why := link.ended(request)) is None:
        if time.monotonic() > end:
            raise PolyfedError(f"a run did not end within {PATIENCE:g} seconds")
        time.sleep(0.2)
    if why:
        raise PolyfedError(why)
