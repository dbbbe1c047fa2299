"""The docs are up to date: generated tables, links, and the examples that they show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.full
def test_the_docs_are_up_to_date_and_their_examples_run() -> None:
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--check"]
    quick = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # most of the time goes into compilation
    done = subprocess.run(command, cwd=ROOT, env=quick, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
