"""Every framework on the same work, in turns: `make bench`, or `python benchmarks/run.py --only a e --repeat 3`.

Each peer's environment is made by a make target; one that is missing or half made is named as a gap. The whole run
writes docs/benchmarks.md, its chart, and the figures beside this file; a part of it prints its table and writes nothing
else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import report
from measure import measure, say
from startup import startup
from works import WORKS

from polyfed.bench.loops import FEDJAX, FLOWER, PFL, POLYFED, TORCH
from polyfed.bench.work import Work
from polyfed.core.machine import memory_bytes
from polyfed.core.startup import start

ENVIRONMENTS = (POLYFED, TORCH, FEDJAX, PFL, FLOWER)
FRAMEWORKS = [environment.framework for environment in ENVIRONMENTS if environment != POLYFED]


def main() -> None:
    os.chdir(report.ROOT)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*WORKS, "startup"], help="these parts alone")
    parser.add_argument("--beside", nargs="*", choices=FRAMEWORKS, default=FRAMEWORKS, help="these frameworks alone")
    parser.add_argument("--repeat", type=int, default=5, help="rounds of each framework, in turns (default 5)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--page", action="store_true", help="write the page from the kept figures; measure nothing")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, found {options.repeat}")
    if options.page:
        report.write_page()
        return
    record = run(options.only or [*WORKS, "startup"], options.beside, options.repeat)
    print(report.tables(record))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    if options.only is None and options.beside == FRAMEWORKS:
        report.keep(record)
        report.write_page()


def run(parts: list[str], beside: list[str], repeat: int) -> dict[str, Any]:
    """The record of a run: where and when it was, and what was measured."""
    start()
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    record: dict[str, Any] = {"machine": machine(threads), "versions": versions(), "date": time.strftime("%Y-%m-%d")}
    works = {key: among(work, [*beside, POLYFED.framework]) for key, work in WORKS.items() if key in parts}
    record["works"] = [measure(key, work, repeat, threads, say) for key, work in works.items()]
    if "startup" in parts:
        say("start-up: import, compilation of every method, a second process")
        record["startup"] = startup(repeat)
    return record


def among(work: Work, frameworks: list[str]) -> Work:
    """The work beside these frameworks alone."""
    return replace(work, peers=tuple(peer for peer in work.peers if peer.environment.framework in frameworks))


def machine(threads: int) -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": threads,
        "memory_gib": round(memory_bytes() / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
    }


def versions() -> dict[str, dict[str, str]]:
    """The versions of each framework that is there."""
    found = {}
    for environment in ENVIRONMENTS:
        names = environment.packages
        if environment.gap() is None:
            code = f"import importlib.metadata as m; print(*(m.version(n) for n in {names!r}), sep='\\n')"
            command = [str(environment.python), "-c", code]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            found[environment.framework] = dict(zip(names, told, strict=True))
    return found


if __name__ == "__main__":
    main()
