"""PyTorch loops in processes of their own, which run a round when they are asked."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from polyfed.errors import PolyfedError

TORCH = Path(".venv-torch/bin/python")
"""Where `make torch` puts the environment of the PyTorch loops."""


def torch_loop(script: str, words: Iterable[str], python: Path | None) -> subprocess.Popen[str] | None:
    """The script beside this file with these arguments, warmed up; None where there is no PyTorch."""
    if python is None:
        if not TORCH.exists():
            return None
        python = TORCH
    command = [str(python), str(Path(__file__).with_name(script)), *words]
    try:
        loop = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise PolyfedError(f"--torch {python}: cannot be started: {error.strerror}") from None
    assert loop.stdout is not None
    if loop.stdout.readline().strip() != "ready":
        raise PolyfedError(f"--torch {python}: this Python could not run the PyTorch loop")
    return loop


def ask(loop: subprocess.Popen[str]) -> float:
    """The seconds of one more round."""
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write("round\n")
    loop.stdin.flush()
    return float(loop.stdout.readline())
