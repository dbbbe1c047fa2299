"""A federation of five real sites is run through a schedule of faults, and must end as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyfed.core.errors import PolyfedError
from polyfed.deploy.network.processes import ChildProcess, environment
from tests.compilation import QUICK
from tests.deploy.chaos.proxy import Proxy
from tests.deploy.chaos.schedule import KINDS, SITES, Fault, Kind, Schedule
from tests.deploy.live import Live

LIMIT = 1200.0
"""Seconds after which a history counts as stuck."""
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"
SEEN = 2.0
"""Seconds until a process has seen that its clock jumped. Read at every call, the file with the clock takes more than
half of a server's time: libfaketime looks at it in every wait of Python's threads for each other."""
ENDED = 10.0
"""Seconds that a process which was killed may still be there."""
ROOM = "4m"
"""The size of the disk that states are written to, where it is to run full."""


def possible_kinds() -> tuple[Kind, ...]:
    """The faults that this machine allows: a clock jumps by libfaketime, and a full disk must be mounted first."""
    missing: set[Kind] = set()
    if _faketime() is None:
        missing.add("clock")
    if os.geteuid() != 0 or shutil.which("mount") is None:
        missing.add("full disk")
    return tuple(kind for kind in KINDS if kind not in missing)


class History:
    """One run under a schedule; `events` tells what happened."""

    def __init__(self, folder: Path, plan: Schedule) -> None:
        self.plan, self.live = plan, Live(folder, SITES)
        self.live.set(
            plan.method,
            {"rounds": plan.rounds},
            minimum=plan.minimum,
            deadline=15.0 if plan.minimum == len(SITES) else 2.0,  # the shorter, the more rounds count without a site
            patience=60,
            gather=200.0,
            secure=plan.secure,
        )
        self.proxies = {site: Proxy(self.live.link.federation.port) for site in SITES}
        for site, proxy in self.proxies.items():
            path = folder / site / "site.toml"
            path.write_text(path.read_text().replace(self.live.link.address, f"127.0.0.1:{proxy.port}"))
        self.disks = [folder / "server" / "runs", *(folder / site / "state" for site in SITES)]
        self.events: list[str] = []
        self.without = 0
        """the rounds that counted without a site"""
        self._clocks = {fault.target for fault in plan.faults if fault.kind == "clock"}
        self._down: set[str] = set()
        self._request = ""
        self._end = 0.0

    def run(self) -> None:
        """Everything, from the first process to the check of the outcome."""
        self._end = time.monotonic() + LIMIT
        with self._small_disks():
            try:
                for name in ("server", *SITES):
                    self._start(name)
                self._until(self._asked)
                self._until(lambda: self.live.rounds() > 0)
                for fault in self.plan.faults:
                    self._pass(fault.after)
                    if self.live.finished():
                        break
                    with self._happening(fault):
                        self._pass(fault.lasts)
                self._until(self._everybody_has_the_result)
                self._check()
            finally:
                for proxy in self.proxies.values():
                    proxy.release()
                self.live.stop()
                for proxy in self.proxies.values():
                    proxy.close()

    def _check(self) -> None:
        """Each round was counted once, and server, states and models are those of a run with just these sites in it."""
        lines = self.live.link.progress()
        counted = [line["round"] for line in lines]
        assert counted == list(range(1, self.plan.rounds + 1)), f"rounds counted: {counted}"
        for line in lines:
            assert len(set(line["sites"]) & set(SITES)) == len(line["sites"]) >= self.plan.minimum, line
        everybody = all(len(line["sites"]) == len(SITES) for line in lines)
        self.without = sum(len(line["sites"]) < len(SITES) for line in lines)
        self.live.assert_equal(None if everybody else [line["sites"] for line in lines])

    # Faults.

    @contextmanager
    def _happening(self, fault: Fault) -> Iterator[None]:
        self.events.append(f"round {self.live.rounds()}: {fault.kind} {fault.target}")
        proxy = self.proxies.get(fault.target)
        if fault.kind == "clock":
            clock = self._clock(fault.target)
            clock.write_text(f"{fault.shift:+d}s\n")
            self._pass(SEEN)
            yield
            clock.write_text("+0s\n")
        elif fault.kind in ("kill", "restart"):
            self._down.add(fault.target)
            for pid in _processes(self.live.folder / fault.target):
                _signal(pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
            self._until(lambda: not _processes(self.live.folder / fault.target))
            yield
            self._down.discard(fault.target)
            self._start(fault.target)
        elif fault.kind == "pause":
            paused = _processes(self.live.folder / fault.target)
            self._down.add(fault.target)
            for pid in paused:
                _signal(pid, signal.SIGSTOP)
            yield
            for pid in paused:
                _signal(pid, signal.SIGCONT)
            self._down.discard(fault.target)
        elif fault.kind == "full disk":
            place = self.live.folder / fault.target / ("runs" if fault.target == "server" else "state")
            filler = place / "filler"
            _fill(filler)
            yield
            filler.unlink()
        else:
            assert proxy is not None
            if fault.kind == "cut":
                proxy.cut()
            elif fault.kind == "hold":
                proxy.hold()
            else:
                proxy.delay = 0.05
            yield
            proxy.release()
            proxy.delay = 0.0

    # What an operator, or a service manager, does: start what ended, ask again for a run that stopped.

    def _clock(self, name: str) -> Path:
        """The file that says by how much a process's clock is off."""
        return self.live.folder / f"{name}.clock"

    def _start(self, name: str) -> None:
        what = "server" if name == "server" else "site"
        env = environment(self.live.folder / name / "flower", XLA_FLAGS=QUICK)
        library = _faketime()
        if name in self._clocks and library is not None:
            clock = self._clock(name)
            if not clock.exists():
                clock.write_text("+0s\n")
            env |= {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1"}
            env |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}
            env["PYTHONPATH"] = str(Path(__file__).parent / "sleeping")
        command = ["polyfed", "deploy", what, str(self.live.folder / name)]
        if name in self.live.children:  # it has ended: its exit status is taken
            self.live.children[name].wait(ENDED)
        self.live.children[name] = ChildProcess(command, env, self.live.folder / name / "logs" / "polyfed.log")

    def _tend(self) -> None:
        for name, child in list(self.live.children.items()):
            if name not in self._down and not child.running:
                self.events.append(f"round {self.live.rounds()}: {name} ended by itself and is started again")
                self._start(name)
        if self._request and "server" not in self._down and not self.live.finished():
            why = self.live.link.ended(self._request)
            if why:
                self.events.append(f"round {self.live.rounds()}: the run stopped ({why}) and is asked for again")
                self._request = ""
        if not self._request:
            self._asked()

    def _asked(self) -> bool:
        """Ask for the run; whether the server took the request."""
        if self.live.link.unfinished():
            return bool(self._request)
        with suppress(PolyfedError):
            self._request = self.live.link.submit()
        return bool(self._request)

    def _everybody_has_the_result(self) -> bool:
        """Whether the run is over; for sites that were away at its end it is asked for once more."""
        if not self.live.finished():
            return False
        away = self.live.link.without_result()
        if away and self.live.link.ended(self._request) is not None:
            self.events.append(f"the run ended without {', '.join(away)} and is asked for again")
            self._request = ""
        return not away

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tend()
            time.sleep(0.1)

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            if time.monotonic() > self._end:
                logs = sorted(self.live.folder.glob("*/logs/*.log"))
                ends = ("\n".join(["---", log.parts[-3], *log.read_text().splitlines()[-15:]]) for log in logs)
                tails = "\n".join(ends)
                raise TimeoutError(f"stuck at round {self.live.rounds()} after {LIMIT:g} s\n{tails}")
            self._tend()
            time.sleep(0.2)

    @contextmanager
    def _small_disks(self) -> Iterator[None]:
        """Disks of their own for what is written in a run, where a fault is to fill one."""
        wanted = any(fault.kind == "full disk" for fault in self.plan.faults)
        mounted: list[Path] = []
        try:
            for place in self.disks if wanted else []:
                place.mkdir(parents=True, exist_ok=True)
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(place)], check=True)
                mounted.append(place)
            yield
        finally:
            for place in mounted:
                subprocess.run(["umount", "--lazy", str(place)], check=True)


def _processes(folder: Path) -> list[int]:
    """The processes whose command line names the folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            inside = str(folder).encode()
            if any(word == inside or word.startswith(inside + b"/") for word in words):
                pids.append(int(path.parent.name))
    return pids


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _fill(path: Path) -> None:
    """Write until there is no room left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def _faketime() -> str | None:
    found = sorted(Path("/").glob(FAKETIME.lstrip("/")))
    return str(found[0]) if found else None
