"""What an advice says in words, and on its page in the dark."""

from __future__ import annotations

import pytest

from polyfed.report.style import style_without_scripts
from polyfed.studies.advice.answer import _helped


@pytest.mark.parametrize(
    ("gains", "loses", "words"),
    [
        (0, 0, "whether it helps any single one of the 6 sites the rows cannot tell"),
        (6, 0, "it helps all 6 sites for certain"),
        (2, 0, "it helps 2 of 6 sites for certain and harms none; for 4 the rows cannot tell"),
        (0, 1, "it harms 1 of 6 sites for certain and helps none; for 5 the rows cannot tell"),
        (5, 1, "it helps 5 of 6 sites for certain and harms 1"),
    ],
)
def test_the_answer_counts_the_sites_that_it_is_certain_of(gains, loses, words) -> None:
    assert _helped(gains, loses, 6) == words


def test_pages_without_scripts_have_the_dark_colours_of_the_others() -> None:
    style = style_without_scripts()
    plain, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert "--page: #f6f7f9" in plain
    assert "{ :root {" in dark
    assert "color-scheme: dark;" in dark
    for name in ("--page", "--ink", "--good", "--bad", "--alone"):
        assert f"{name}: " in dark
    assert dark.count("{") == dark.count("}")
