"""Histories one after another, until the time is up: `python -m tests.deploy.chaos --minutes 10`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.deploy.chaos.history import History, possible_kinds
from tests.deploy.chaos.schedule import KINDS, schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the next has the next seed")
    parser.add_argument("--replay", action="store_true", help="the history of --seed alone")
    given = parser.parse_args()
    kinds = possible_kinds()
    for kind in KINDS:
        if kind not in kinds:
            print(f"not possible on this machine: {kind}", flush=True)
    end = time.monotonic() + 60 * (60 * given.hours or given.minutes)
    survived, without, faults, failed, seed = 0, 0, 0, [], given.seed
    while True:
        plan = schedule(seed, kinds)
        print(plan, flush=True)
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
            history = History(Path(folder) / "project", plan)
            try:
                history.run()
            except Exception:
                traceback.print_exc()
                failed.append(seed)
            else:
                survived += 1
                without += history.without > 0
                faults += len(plan.faults)
        taken = time.monotonic() - begun
        for event in history.events:
            print(f"    {event}")
        outcome = f"as if undisturbed, {history.without} rounds without somebody"
        outcome = "FAILED" if seed in failed else outcome
        print(f"history {seed}: {outcome}, {taken:.0f} s", flush=True)
        seed += 1
        if given.replay or time.monotonic() + taken > end:
            break
    names = f": seeds {', '.join(map(str, failed))}" if failed else ""
    print(f"{survived} histories with {faults} faults survived, {without} of them with rounds without somebody")
    print(f"{len(failed)} failed{names}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
