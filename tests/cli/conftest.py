"""A config for the commands that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import CONFIG


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(CONFIG)
    return tmp_path / "small.toml"
