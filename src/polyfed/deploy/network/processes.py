"""Programs as children of this process: each in a session of its own, and none outlives this process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from polyfed.core.errors import PolyfedError

LOOPBACK = "127.0.0.1"
ENDS_WITH_PARENT = (
    [
        sys.executable,
        "-ISc",
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])",
    ]
    if sys.platform == "linux"
    else []
)
"""Put before a command on Linux: the kernel then ends it (signal 9) when its parent dies, however that happens."""
GRACE = 5.0
"""The seconds that a child has to end by itself."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of our programs, and of Flower's: Flower reports and looks up nothing elsewhere."""
    programs = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **more,
    }


class ChildProcess:
    """A program, with its output in a file; its own children end with it."""

    def __init__(self, command: Sequence[str], env: dict[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        program = Path(sys.executable).parent / command[0]
        if not program.exists():
            raise PolyfedError(f"{command[0]} is not installed: pip install 'polyfed[deploy]'")
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*ENDS_WITH_PARENT, str(program), *command[1:]],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status; None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout)
        return None

    def stop(self) -> None:
        """End the program and all that it started."""
        detached = _detached_groups(self.pid)
        for how, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            with suppress(ProcessLookupError):
                os.killpg(self.pid, how)
            self.wait(patience)
            if not self.running and not _group_alive(self.pid):
                break
        for group in detached:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def kill(self) -> None:
        """End it as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(GRACE)

    def tail(self, lines: int = 8) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def stop_together(stops: Iterable[Callable[[], None]]) -> None:
    """Stop several things at the same time: each may take seconds to end."""
    with ThreadPoolExecutor() as pool:
        for stopped in [pool.submit(stop) for stop in stops]:
            stopped.result()


def run_command(command: Sequence[str], env: dict[str, str], timeout: float = 120.0) -> str:
    """Run one of Flower's commands to its end, and return its output."""
    program = str(Path(sys.executable).parent / command[0])
    try:
        ended = subprocess.run(
            [program, *command[1:]],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        raise PolyfedError(f"{command[0]} is not installed: pip install 'polyfed[deploy]'") from None
    except subprocess.TimeoutExpired:
        raise PolyfedError(f"`{' '.join(command[:3])}` did not end within {timeout:g} seconds") from None
    if ended.returncode:
        raise PolyfedError(f"`{' '.join(command[:3])}` failed: {(ended.stderr or ended.stdout).strip()[-400:]}")
    return ended.stdout


@contextmanager
def locked(path: Path, wait: float = 0.0) -> Iterator[None]:
    """Within it, no other process holds this lock, for which it waits so many seconds. It goes with its process."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    end = time.monotonic() + wait
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise PolyfedError(f"{path}: another process is at work in this folder") from None
            time.sleep(0.05)
        yield


def free_port() -> int:
    """A port on this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def wait_for_port(child: ChildProcess, host: str, port: int, timeout: float = 60.0) -> None:
    """Wait until the child listens."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if not child.running:
            raise PolyfedError(f"the server did not start; its log {child.log} ends with:\n{child.tail()}")
        with suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.1)
    raise PolyfedError(f"the server does not listen on {host}:{port} after {timeout:g} seconds, see {child.log}")


def _detached_groups(pid: int) -> set[int]:
    """The process groups that a program's descendants made for themselves; on Linux."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    descendants: set[int] = set()
    generation = {pid}
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation} - descendants
        descendants |= generation
    groups = set()
    for descendant in descendants:
        with suppress(ProcessLookupError):
            groups.add(os.getpgid(descendant))
    return groups & descendants


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
