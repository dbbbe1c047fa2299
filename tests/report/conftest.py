from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.report.browser import Browser, find_browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        reason = "no Chromium or Chrome on the PATH (`make browser` installs one)"
        if os.environ.get("POLYFED_REQUIRE_BROWSER") == "1":
            pytest.fail(f"POLYFED_REQUIRE_BROWSER=1, but there is {reason}")
        pytest.skip(reason)
    with Browser(program, tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened
