"""Other frameworks' loops in processes of their own, which run a round when they are asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from polyfed.core.errors import PolyfedError


@dataclass(frozen=True)
class Environment:
    """A Python with another framework: where its make target puts it, and the option that names another one."""

    framework: str
    python: Path
    option: str


TORCH = Environment("PyTorch", Path(".venv-torch/bin/python"), "--torch")
FEDJAX = Environment("FedJAX", Path(".venv-fedjax/bin/python"), "--fedjax")
PFL = Environment("pfl", Path(".venv-pfl/bin/python"), "--pfl")
FLOWER = Environment("Flower", Path(".venv-flower/bin/python"), "--flower")
POLYFED = Environment("polyfed", Path(sys.executable), "--polyfed")


def start_loop(
    environment: Environment, script: str, words: Iterable[str], python: Path | None = None
) -> subprocess.Popen[str] | None:
    """The script beside this file with these arguments; None where there is no such environment and none was named."""
    if python is None:
        if not environment.python.exists():
            return None
        python = environment.python
    named = f"{environment.option} {python}"
    command = [str(python), str(Path(__file__).parent / script), *words]
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # another XLA knows other flags
    try:
        loop = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=usual)
    except OSError as error:
        raise PolyfedError(f"{named}: cannot be started: {error.strerror}") from None
    assert loop.stdout is not None
    if loop.stdout.readline().strip() != "ready":
        end(loop)
        raise PolyfedError(f"{named}: this Python could not run the {environment.framework} loop")
    return loop


def ask(loop: subprocess.Popen[str], question: str = "round") -> list[float]:
    """The numbers of the loop's answer: of a round, its seconds."""
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(f"{question}\n")
    loop.stdin.flush()
    answer = loop.stdout.readline()
    if not answer:
        raise PolyfedError(f"{loop.args}: the loop ended before it answered")
    return [float(word) for word in answer.split()]


def end(loop: subprocess.Popen[str]) -> None:
    """Close its input and wait until it has ended."""
    try:
        loop.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        loop.kill()
        loop.wait()
