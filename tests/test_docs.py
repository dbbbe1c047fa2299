"""The docs are up to date: generated tables, links, configs, and the examples that they show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.compilation import QUICK

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
assert spec is not None
assert spec.loader is not None
build = sys.modules["docs_build"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

PAGES: list[Path] = build.pages()
WITH_EXAMPLES = [page for page in PAGES if build.program(page)]


def test_tables_links_and_configs_are_up_to_date() -> None:
    problems = [problem for page in PAGES for problem in (*build.rewrite(page, check=True), *build.mistakes(page))]
    assert [*problems, *build.wrong_sources(ROOT / "docs" / "config.md")] == []


@pytest.mark.full
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", QUICK)
    assert list(build.failing_examples(page)) == []
