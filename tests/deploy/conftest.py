"""Three sites of unequal size, and grids over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyfed as pf
from tests.conftest import unequal_clients
from tests.deploy.loopback import Loopback


@pytest.fixture(scope="session")
def three() -> pf.Federation:
    clients = dict(list(unequal_clients().items())[:3])
    return pf.Federation.from_arrays(clients, classes=3, columns={"lean": [0.2, 0.5, 0.9]})


@pytest.fixture
def loopback(three: pf.Federation, tmp_path: Path) -> Callable[..., Loopback]:
    """Makes grids over the three sites."""

    def make(folder: str = "one", federation: pf.Federation = three, **options: Any) -> Loopback:
        return Loopback(federation, tmp_path / folder, **options)

    return make
