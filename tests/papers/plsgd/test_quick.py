"""Quick versions of PLSGD's figures."""

from __future__ import annotations

from polyfed import papers


def test_quick_figures_confirm_what_holds_and_report_what_does_not(tmp_path) -> None:
    """Fig. 1b in full is the same; (21) fails for a small alpha, and the comparison of exponents misleads."""
    failed = []
    for name in ("plsgd/fig1b", "plsgd/fig2", "plsgd/fig4"):
        ((_, folder, outcome),) = papers.reproduce(name, tmp_path, quick=True)
        failed += [claim.text for claim in outcome.claims if not claim.passed]
        assert (folder / "figure.png").stat().st_size > 5000
    assert failed == [
        "PLSGD, α = 0.1: (21) bounds its mean.",
        "So PLSGD contracts faster than pure local training at the same eta.",
    ]
