"""Other frameworks' loops, each in a process of its own that runs a round when it is asked to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polyfed.core.errors import PolyfedError

PEERS = Path(__file__).parent / "peers"
"""The scripts of other frameworks that `polyfed bench` runs."""


@dataclass(frozen=True)
class Environment:
    """A Python with another framework: where its make target puts it, and the option that names another one."""

    framework: str
    python: Path
    option: str
    packages: tuple[str, ...]
    """what it must be able to import"""

    def gap(self) -> str | None:
        """Why the environment cannot be used; None where it can."""
        if not self.python.exists():
            return f"there is no {self.python}"
        missing = _missing(self.python, self.packages)
        return f"{self.python} cannot import {missing}" if missing else None


@cache
def _missing(python: Path, packages: tuple[str, ...]) -> str:
    """The packages that this Python cannot import, asked of itself: an environment may be half made."""
    for package in packages:
        command = [str(python), "-c", f"import {package}"]
        try:
            failed = subprocess.run(command, capture_output=True, env=_variables()).returncode != 0
        except OSError:
            failed = True
        if failed:
            return package
    return ""


TORCH = Environment("PyTorch", Path(".venv-torch/bin/python"), "--torch", ("torch",))
FEDJAX = Environment("FedJAX", Path(".venv-fedjax/bin/python"), "--fedjax", ("fedjax", "jax"))
PFL = Environment("pfl", Path(".venv-pfl/bin/python"), "--pfl", ("pfl",))
FLOWER = Environment("Flower", Path(".venv-flower/bin/python"), "--flower", ("flwr", "ray"))
POLYFED = Environment("polyfed", Path(sys.executable), "--polyfed", ("jax",))


def _variables() -> dict[str, str]:
    """The variables of a loop's process: scripts find those in PEERS, and no flags of our XLA, which others reject."""
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    folders = [str(PEERS), usual.get("PYTHONPATH", "")]
    return usual | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def start_loop(
    environment: Environment, script: Path, words: Iterable[str], python: Path | None = None
) -> subprocess.Popen[str] | None:
    """The script with these arguments; None where the environment cannot be used and no other Python is named."""
    if python is None:
        if environment.gap() is not None:
            return None
        python = environment.python
    named = f"{environment.option} {python}"
    command = [str(python), str(script), *words]
    try:
        loop = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_variables())
    except OSError as error:
        raise PolyfedError(f"{named}: cannot be started: {error.strerror}") from None
    assert loop.stdout is not None
    if loop.stdout.readline().strip() != "ready":
        end(loop)
        raise PolyfedError(f"{named}: this Python could not run the {environment.framework} loop")
    return loop


def ask(loop: subprocess.Popen[str], question: str = "round") -> list[float]:
    """The numbers of the loop's answer; a round's are its seconds."""
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(f"{question}\n")
    loop.stdin.flush()
    answer = loop.stdout.readline()
    if not answer:
        raise PolyfedError(f"{loop.args}: the loop ended before it answered")
    return [float(word) for word in answer.split()]


def end(loop: subprocess.Popen[str]) -> None:
    """Close the loop's input and wait until it has ended."""
    try:
        loop.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        loop.kill()
        loop.wait()
