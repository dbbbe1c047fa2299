"""Watches over the processes of a simulation on several hosts: when one is lost, all end, with one sentence.

Without it, JAX would abort the others with a stack trace, or leave them waiting. So the command that a user starts on
each host does none of the work. It starts a worker (`work.py`), and keeps a connection to the guard of process 0, which
knows all processes. A guard notices when its own worker ends. When a guard or a host ends, its connection ends too.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import IO

from polyfed.core.errors import INTERRUPTED, LOST, USER_ERROR, LostProcess
from polyfed.core.worker import Worker
from polyfed.engine.hosts.meeting import GRACE_SECONDS, Connection, meet
from polyfed.engine.hosts.team import Team
from polyfed.engine.hosts.work import CUT_OFF

PATIENCE_SECONDS = 75.0
"""How long to wait for word on which process was lost: longer than JAX waits for a sign of life."""


def guarded(team: Team, arguments: list[str]) -> int:
    """Run `polyfed ARGUMENTS` as one process of a team, and return its exit code; a lost process is an exception."""
    connections, coordinator = meet(team, _task(arguments))
    with _worker(team, coordinator, arguments) as (process, log):
        watch = _Watch(team, connections, process, log)
        code = watch.until_the_end()
    for connection in connections.values():
        connection.socket.close()
    if watch.loss:
        raise LostProcess(watch.loss)
    return code


class _Watch:
    """What one guard sees: its own worker, and what other guards report.

    Process 0 is connected to all the others, which are connected to process 0 only.
    """

    def __init__(
        self, team: Team, connections: Mapping[int, Connection], worker: subprocess.Popen[bytes], log: IO[bytes]
    ) -> None:
        self.team, self.connections, self.worker, self.log = team, connections, worker, log
        self.exit_codes: dict[int, int] = {}
        """of the other workers, as their guards report them"""
        self.loss: str | None = None
        """the sentence on the process that was lost first"""
        self._selector = selectors.DefaultSelector()
        for index, connection in connections.items():
            self._selector.register(connection, selectors.EVENT_READ, index)

    def until_the_end(self) -> int:
        """Wait until the work is done, or a process is lost; the exit code."""
        code: int | None = None
        deadline = float("inf")
        while self.loss is None and time.monotonic() < deadline:
            self._listen()
            if code is None and (code := self.worker.poll()) is not None:
                deadline = time.monotonic() + self._report_end(code)
            elif code is None and any(self.exit_codes.values()):
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            if code is not None and len(self.exit_codes) == len(self.connections):
                break
        if code is None or code in (CUT_OFF, -signal.SIGABRT):
            with suppress(OSError):
                self.worker.kill()
            self.worker.wait()
            code = self._code_without_worker()
        return code

    def _code_without_worker(self) -> int:
        """The exit code where the own worker was killed, or was cut off from the others."""
        if self.loss is None and INTERRUPTED in self.exit_codes.values():
            return INTERRUPTED
        failed = next((index for index, code in self.exit_codes.items() if code), None)
        if failed is not None:
            self._note_loss(failed, f"it ended with exit code {self.exit_codes[failed]}, and says why")
        elif self.loss is None:
            sys.stderr.write(self._log_text())
            self._note_loss(self.team.index, "it lost sight of the others")
        return LOST

    def _report_end(self, code: int) -> float:
        """The own worker has ended: tell the others. Returns how many seconds to wait for word from them."""
        if code in (0, USER_ERROR, INTERRUPTED):
            self._send_all(over=self.team.index, code=code)
            return 0.0
        if silent := re.search(r"stopped sending heartbeats\):\s+(\d+)", self._log_text()):
            self._note_loss(int(silent[1]), "it gave no sign of life")
        elif code not in (CUT_OFF, -signal.SIGABRT):
            why = f"killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
            self._note_loss(self.team.index, why)
        return PATIENCE_SECONDS  # another process is lost: its guard will say so

    def _listen(self) -> None:
        for key, _ in self._selector.select(timeout=0.1):
            index: int = key.data
            messages = self.connections[index].receive()
            for message in messages or []:
                if "lost" in message:
                    self._note_loss(int(message["lost"]), str(message["why"]))
                elif "over" in message:
                    self.exit_codes[index] = int(message["code"])
            if messages is None:
                self._selector.unregister(self.connections[index])
                if index not in self.exit_codes:
                    self._note_loss(index, "the connection to it has ended")

    def _note_loss(self, index: int, why: str) -> None:
        """Note the first loss, and pass it on."""
        if self.loss is None:
            self._send_all(lost=index, why=why)
            self.loss = (
                f"{self.team.title(index)} was lost: {why}; the run has stopped. Start all {self.team.count} processes "
                "again, or another number, with --resume to go on from the last checkpoint"
            )

    def _send_all(self, **message: str | int) -> None:
        for connection in self.connections.values():
            connection.send(**message)

    def _log_text(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def _task(arguments: list[str]) -> str:
    """What all processes must have in common, in words: the versions, and the arguments but for --host-index."""
    words = iter(arguments)
    same = [word for word in words if word != "--host-index" or not next(words, None)]
    same = [word for word in same if not word.startswith("--host-index=")]
    return f"polyfed {version('polyfed')} with JAX {version('jax')}: {' '.join(same)}"


@contextmanager
def _worker(team: Team, coordinator: str, arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Start the process that does the work, with a log for what C++ libraries write. Ctrl-C is left to that process."""
    lifeline, held = os.pipe()
    with tempfile.TemporaryFile() as log:
        worker = Worker(coordinator, team.count, team.index, log.fileno(), lifeline)
        process = subprocess.Popen(
            [sys.executable, "-m", "polyfed", *arguments],
            env=os.environ | worker.environment(),
            pass_fds=(worker.log, worker.lifeline),
        )
        os.close(lifeline)
        at_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        at_end = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            yield process, log
        finally:
            with suppress(OSError):
                process.kill()
            process.wait()
            os.close(held)
            signal.signal(signal.SIGINT, at_interrupt)
            signal.signal(signal.SIGTERM, at_end)
