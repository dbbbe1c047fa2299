"""Watches over the processes of a simulation on several hosts: where one is lost, all end, with one sentence.

JAX alone would abort the others with a stack trace, or leave them waiting. So the command that a user starts on each
host does none of the work: it starts the process that does, and keeps a connection to the command of process 0, which
knows of all. A process that ends is seen by its guard; a guard or a host that ends, by the connection.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import IO, Any

from polyfed.core.errors import PolyfedError
from polyfed.engine.hosts.team import MEETING_SECONDS, Team, is_loopback

VARIABLE = "POLYFED_PROCESS"
"""What a guard tells the process that it starts."""
LOST, CUT_OFF, USER_ERROR, INTERRUPTED = 3, 75, 2, 130
"""Exit codes: a process was lost; the others were lost sight of (of a worker only); a mistake; Ctrl-C."""
PATIENCE_SECONDS = 75.0
"""How long to wait for word on who was lost: longer than JAX waits for a sign of life."""
GRACE_SECONDS = 5.0
"""How long a process may go on after another has ended of itself."""
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A host that does not answer is given up after half a minute."""


class Line:
    """A connection to another guard: one JSON object per line."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.connection, self._text = connection, b""

    def fileno(self) -> int:
        return self.connection.fileno()

    def say(self, **message: Any) -> None:
        with suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def heard(self) -> list[dict[str, Any]] | None:
        """What has come; None where the connection has ended, or is not a guard's."""
        try:
            piece = self.connection.recv(1 << 16)
            *lines, self._text = (self._text + piece).split(b"\n")
            messages = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return None
        whole = piece and len(self._text) < 1 << 16 and all(isinstance(message, dict) for message in messages)
        return messages if whole else None


def guarded(team: Team, arguments: list[str]) -> int:
    """Run `polyfed ARGUMENTS` as one process of a team; the exit code. A loss is told on stderr."""
    lines, coordinator = _meet(team, _work(arguments))
    with _worker(team, coordinator, arguments) as (worker, log):
        watch = _Watch(team, lines, worker, log)
        code = watch.until_the_end()
    for line in lines.values():
        line.connection.close()
    if watch.sentence:
        raise LostProcess(watch.sentence)
    return code


class LostProcess(Exception):
    """A process of the team is gone, and so the run."""


class _Watch:
    """One guard's view: its own process, and the lines to the others (to process 0 alone, unless it is process 0)."""

    def __init__(self, team: Team, lines: dict[int, Line], worker: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.team, self.lines, self.worker, self.log = team, lines, worker, log
        self.over: dict[int, int] = {}
        self.sentence: str | None = None
        self._selector = selectors.DefaultSelector()
        for index, line in lines.items():
            self._selector.register(line, selectors.EVENT_READ, index)

    def until_the_end(self) -> int:
        """Wait until the work is done, or a process is lost; the exit code."""
        code: int | None = None
        deadline = float("inf")
        while self.sentence is None and time.monotonic() < deadline:
            self._listen()
            if code is None and (code := self.worker.poll()) is not None:
                deadline = time.monotonic() + self._ended(code)
            elif code is None and any(self.over.values()):
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            if code is not None and len(self.over) == len(self.lines):
                break
        if code is None or code in (CUT_OFF, -signal.SIGABRT):
            with suppress(OSError):
                self.worker.kill()
            self.worker.wait()
            code = self._without_worker()
        return code

    def _without_worker(self) -> int:
        """The exit code where this guard's own process did not come to an end of its own."""
        if self.sentence is None and INTERRUPTED in self.over.values():
            return INTERRUPTED
        ended = next((index for index, code in self.over.items() if code), None)
        if ended is not None:
            self._lost(ended, f"it ended with exit code {self.over[ended]}, and says why")
        elif self.sentence is None:
            sys.stderr.write(self._log_text())
            self._lost(self.team.index, "it lost sight of the others")
        return LOST

    def _ended(self, code: int) -> float:
        """This guard's own process has ended: tell the others. How long to wait for word from them."""
        if code in (0, USER_ERROR, INTERRUPTED):
            self._tell(over=self.team.index, code=code)
            return 0.0
        if silent := re.search(r"stopped sending heartbeats\):\s+(\d+)", self._log_text()):
            self._lost(int(silent[1]), "it gave no sign of life")
        elif code not in (CUT_OFF, -signal.SIGABRT):
            why = f"killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
            self._lost(self.team.index, why)
        return PATIENCE_SECONDS  # another is lost: its guard will say so

    def _listen(self) -> None:
        for key, _ in self._selector.select(timeout=0.1):
            index, line = key.data, key.fileobj
            messages = line.heard()  # pyright: ignore[reportAttributeAccessIssue]
            for message in messages or []:
                if "lost" in message:
                    self._lost(int(message["lost"]), str(message["why"]))
                elif "over" in message:
                    self.over[index] = int(message["code"])
            if messages is None:
                self._selector.unregister(line)
                if index not in self.over:
                    self._lost(index, "the connection to it has ended")

    def _lost(self, index: int, why: str) -> None:
        """Note the first loss, and pass it on."""
        if self.sentence is None:
            self._tell(lost=index, why=why)
            self.sentence = (
                f"{self.team.title(index)} was lost: {why}; the run has stopped. Start all {self.team.count} processes "
                "again, or another number, with --resume to go on from the last checkpoint"
            )

    def _tell(self, **message: Any) -> None:
        for line in self.lines.values():
            line.say(**message)

    def _log_text(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def _work(arguments: list[str]) -> str:
    """What all processes must have in common, in words."""
    words = iter(arguments)
    same = [word for word in words if word != "--host-index" or not next(words, None)]
    same = [word for word in same if not word.startswith("--host-index=")]
    return f"polyfed {version('polyfed')} with JAX {version('jax')}: {' '.join(same)}"


def _meet(team: Team, work: str) -> tuple[dict[int, Line], str]:
    """Connect the guards: process 0 waits for all, then tells them where JAX's own service will be."""
    deadline = time.monotonic() + MEETING_SECONDS
    return _await_all(team, work, deadline) if team.index == 0 else _join(team, work, deadline)


def _await_all(team: Team, work: str, deadline: float) -> tuple[dict[int, Line], str]:
    try:
        server = _listening(team.host, team.port)
    except OSError as error:
        raise PolyfedError(f"process 0 cannot listen at {team.host}:{team.port}: {error.strerror}") from None
    lines: dict[int, Line] = {}
    with server:
        while len(lines) < team.count - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                line = Line(server.accept()[0])
            except TimeoutError:
                missing = [team.title(index) for index in range(1, team.count) if index not in lines]
                raise PolyfedError(f"{', '.join(missing)} did not come within {MEETING_SECONDS} seconds") from None
            line.connection.settimeout(GRACE_SECONDS)
            hello = (line.heard() or [{}])[0]
            index = hello.get("index")
            if hello.get("count") != team.count or not isinstance(index, int) or not 0 < index < team.count:
                line.say(refused=f"process 0 expects {team.count} processes")
            elif index in lines:
                line.say(refused=f"there is a process {index} already")
            elif hello.get("work") != work:
                line.say(refused=f"process 0 runs something else: {work}")
            else:
                line.connection.settimeout(None)
                lines[index] = line
    coordinator = f"{team.host}:{_free_port(team.host)}"
    for line in lines.values():
        line.say(coordinator=coordinator)
    return lines, coordinator


def _join(team: Team, work: str, deadline: float) -> tuple[dict[int, Line], str]:
    while True:
        try:
            line = Line(socket.create_connection((team.host.strip("[]"), team.port), timeout=GRACE_SECONDS))
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise PolyfedError(
                    f"{team.title(0)} does not answer at {team.host}:{team.port}: {error.strerror or error}"
                ) from None
            time.sleep(0.2)
    line.connection.settimeout(max(1.0, deadline - time.monotonic()))
    line.say(index=team.index, count=team.count, work=work)
    told = (line.heard() or [{"refused": "the connection to process 0 has ended"}])[0]
    if "coordinator" not in told:
        raise PolyfedError(f"{team.title(team.index)} cannot take part: {told.get('refused')}")
    line.connection.settimeout(None)
    return {0: line}, told["coordinator"]


@contextmanager
def _worker(team: Team, coordinator: str, arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The process that does the work. What C++ libraries write is kept from the terminal; Ctrl-C is left to it."""
    lifeline, held = os.pipe()
    with tempfile.TemporaryFile() as log:
        told = {"coordinator": coordinator, "count": team.count, "index": team.index}
        told |= {"log": log.fileno(), "lifeline": lifeline}
        worker = subprocess.Popen(
            [sys.executable, "-m", "polyfed", *arguments],
            env=os.environ | {VARIABLE: json.dumps(told)},
            pass_fds=(log.fileno(), lifeline),
        )
        os.close(lifeline)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        ended = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            yield worker, log
        finally:
            with suppress(OSError):
                worker.kill()
            worker.wait()
            os.close(held)
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, ended)


def is_worker() -> bool:
    """Whether a guard has started this process."""
    return VARIABLE in os.environ


def work(command: Callable[[], None]) -> None:
    """Run a command in a process that a guard has started, together with the others."""
    from polyfed.engine import hosts

    told = json.loads(os.environ[VARIABLE])
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    for number in (1, 2):  # what remains on them is what C++ libraries write
        os.dup2(told["log"], number)
    threading.Thread(target=_end_with_guard, args=(told["lifeline"],), daemon=True).start()
    code: Any = 0
    try:
        hosts.connect(told["coordinator"], told["count"], told["index"])
        command()
    except SystemExit as end:
        code = end.code or 0
    except PolyfedError as error:
        print(f"error: {error}", file=sys.stderr)
        code = USER_ERROR
    except BaseException as error:
        if _is_jax(error):  # maybe for the loss of another process, which the guards find out
            os.write(2, traceback.format_exc().encode())
            code = CUT_OFF
        else:
            traceback.print_exc()
            code = 1
    if code:
        sys.stdout.flush()
        os._exit(code)  # without JAX's farewell, in which it waits for the others


def _is_jax(error: BaseException) -> bool:
    """Whether an exchange or a computation of JAX has failed; it says so by a type of its own, or by a status."""
    import jax

    status = isinstance(error, ValueError) and re.match("[A-Z_]+: ", str(error)) is not None
    return status or isinstance(error, jax.errors.JaxRuntimeError)


def _end_with_guard(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(LOST)


def _free_port(host: str) -> int:
    with _listening(host, 0) as probe:
        return probe.getsockname()[1]


def _listening(host: str, port: int) -> socket.socket:
    """A server at a loopback address, or at all of this machine's."""
    if is_loopback(host):
        address = host.strip("[]")
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    both = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
