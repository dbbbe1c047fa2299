"""The page in a real browser: it opens offline without an error, draws, hides, fits and turns dark."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from polyfed.report import write_report
from polyfed.studies.run_directory import RunRecord
from tests.report.browser import Browser
from tests.report.gallery import GALLERY
from tests.report.samples import fair, judged, make_run, moving, page_verdicts

pytestmark = pytest.mark.browser

DRAWN = """[...document.querySelectorAll('.js-plotly-plot')].filter(c => c.offsetParent).map(c => {
  const svg = c.querySelector('svg.main-svg').getBoundingClientRect(), box = c.getBoundingClientRect();
  return {id: c.id, width: svg.width, height: svg.height, room: box.width,
          marks: c.querySelectorAll('.trace path, .trace .point, .boxes path').length,
          axes: c.id === 'boxes' ? 1 : 2, titles: c.querySelectorAll('.xtitle, .ytitle').length};
})"""
OUTSIDE = """(part, whole, by) => {
  const a = part.getBoundingClientRect(), b = whole.getBoundingClientRect();
  return a.width && (a.left < b.left - by || a.right > b.right + by || a.top < b.top - by || a.bottom > b.bottom + by);
}"""
# Words of a chart that stick out of it.
CUT_LABELS = f"""[...document.querySelectorAll('.js-plotly-plot')].filter(c => c.offsetParent).flatMap(c =>
  [...c.querySelectorAll('.main-svg text')].filter(t => ({OUTSIDE})(t, c, 1)).map(t => [c.id, t.textContent]))"""
# Bars of intervals that leave their cell.
STRAY_BARS = f"""[...document.querySelectorAll('#client-table .whisker i')].filter(bar =>
  ({OUTSIDE})(bar, bar.parentNode, 6)).map(bar => bar.closest('tr').textContent)"""
LEGENDS = """[...document.querySelectorAll('.legend')].filter(l => l.offsetParent).map(l =>
  [l.clientHeight, l.parentNode.querySelector('.chart').clientHeight])"""
# Tables that are wider than their room.
CLIPPED = """[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 1)
  .map(s => s.textContent.slice(0, 60))"""
# Whether any trace of a method is on screen, chart by chart.
SEEN = """(method => Object.fromEntries([...document.querySelectorAll('.js-plotly-plot')].map(c => [
  c.id, Boolean(c.offsetParent) && c.data.some(t => t.meta === method && ![false, 'legendonly'].includes(t.visible))
])))"""


def three_methods() -> list[RunRecord]:
    local = make_run("Local", algorithm="local", models=("personal", "alone"), bits_per_round=0, lift=0.0)
    seeds = judged([moving(make_run("APFL", seed=seed, own_share=True)) for seed in (0, 1)])
    return [local, make_run("FedAvg", lift=0.02), *seeds]


def evil() -> list[RunRecord]:
    name = "</script><script>throw 1</script><a href='https://example.org'>x</a>"
    return [moving(make_run(name, clients=[name, "b"], own_share=True))]


def broken() -> list[RunRecord]:
    run = make_run(models=("global",), splits=("test",), diverged=True)
    for row in run.history[2:]:
        row.update(dict.fromkeys(set(row) - {"round"}))
    for row in run.clients:
        row["global_test_accuracy"] = float("nan")
    return [run]


CASES: dict[str, Callable[[], list[RunRecord]]] = {
    **GALLERY,
    "several": three_methods,
    "one-client": lambda: [moving(make_run("APFL", clients=1, own_share=True))],
    "two-thousand": lambda: [moving(make_run(x, clients=2000, own_share=True, rounds=40)) for x in ("APFL", "Ditto")],
    "no-alone": lambda: [make_run("FedAvg", models=("global",), splits=("train", "test"))],
    "twelve-methods": lambda: [fair(make_run(f"A method with a long name {i}", lift=i / 200)) for i in range(12)],
    "evil-names": evil,
    "broken": broken,
    "no-history": lambda: [RunRecord(r.path, r.config, [], r.clients, r.summary) for r in [make_run()]],
}


QUICK = ("several", "evil-names")


@pytest.fixture(params=[pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in CASES])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_report(CASES[request.param](), tmp_path / "report.html", title=request.param)


@pytest.fixture
def several(tmp_path: Path) -> Path:
    return write_report(three_methods(), tmp_path / "report.html", title="Hospitals")


def test_it_opens_without_an_error_or_a_request_and_everything_fits(browser: Browser, page: Path) -> None:
    browser.open(page, width=400, dark=True)
    assert browser.requests == [page.resolve().as_uri()]
    for width in (400, 900, 1400):
        browser.resize(width)
        assert browser.errors == []
        assert browser.run("document.documentElement.scrollWidth") == width
        for chart in browser.run(DRAWN):
            assert chart["width"] == pytest.approx(chart["room"], abs=1.5), (width, chart)
            assert chart["height"] > 80, (width, chart)
            assert chart["titles"] == chart["axes"], (width, chart)
        assert browser.run(CUT_LABELS) == []
        assert browser.run(STRAY_BARS) == []
        for legend, chart in browser.run(LEGENDS):
            assert 0 < legend < 0.75 * chart
        assert browser.run("document.querySelectorAll('#client-table tbody tr').length") >= 1
    assert browser.run(CLIPPED) == []


@pytest.mark.full
def test_every_chart_is_drawn(browser: Browser, several: Path) -> None:
    browser.open(several)
    charts = {chart["id"]: chart for chart in browser.run(DRAWN)}
    assert {"by-round", "by-cost", "boxes", "own-chart", "move-2"} <= set(charts)
    for chart in charts.values():
        assert chart["marks"] > 0, chart


def two_digits(value: str | float) -> int:
    """The decimals that show two significant digits, and at least two of them."""
    return max(2, 1 - math.floor(math.log10(abs(float(value)))))


@pytest.mark.full
def test_the_table_of_clients_says_what_the_run_says(browser: Browser, tmp_path: Path) -> None:
    runs = GALLERY["hospitals"]()
    browser.open(write_report(runs, tmp_path / "r.html", title="Hospitals"))
    focus = next(run for run in runs if run.label == browser.run("METHODS[DATA.focus].label"))
    cells = browser.run(
        "Object.fromEntries([...document.querySelectorAll('#client-table tbody tr')].map(row => "
        "[row.cells[0].textContent, [...row.cells].map(cell => cell.textContent)]))"
    )
    assert set(cells) == {row["client"] for row in focus.clients}
    verdicts = page_verdicts(focus)
    assert verdicts != {row["client"]: row["verdict"] for row in focus.clients}  # some hold by themselves alone
    for row in focus.clients:
        seen, verdict = cells[row["client"]], verdicts[str(row["client"])]
        assert seen[1] == f"{row['rows']:,.0f} {row['test_rows']:,.0f} test"
        assert seen[2] == f"{100 * float(row['positives']):.1f}%"
        written = {"gain": two_digits(row["gain"]), "gain_low": 2, "gain_high": 2}
        gain, low, high = (f"{row[key]:+.{digits}f}".replace("-", "−") for key, digits in written.items())
        assert seen[5] == f"{gain} {low.lstrip('+')} to {high.lstrip('+')}"
        limit = (
            f" nothing below {row['detectable']:.{two_digits(row['detectable'])}f}" if verdict == "cannot tell" else ""
        )
        assert seen[7] == f"{verdict}{limit}"
    zeros = browser.run("[2e-17, -2e-17, 0].map(gain => gainText({ decimals: 4 }, gain))")  # what rounding leaves
    assert zeros == ["0.0000"] * 3
    bar = "document.querySelectorAll('#client-table .whisker')[0]"
    left, width = browser.run(
        f"(b => [b.querySelector('.reach').style.left, b.querySelector('.reach').style.width])({bar})"
    )
    first = next(row for row in focus.clients if row["client"] == next(iter(cells)))
    ends = [float(row[key]) for row in focus.clients for key in ("gain_low", "gain_high")] + [0.0]
    span = max(ends) - min(ends)
    assert float(left[:-1]) == pytest.approx(100 * (float(first["gain_low"]) - min(ends)) / span, abs=0.01)
    assert float(width[:-1]) == pytest.approx(
        100 * (float(first["gain_high"]) - float(first["gain_low"])) / span, abs=0.01
    )
    browser.run("(s => { s.value = 3; s.onchange(); })(document.getElementById('site-method'))")
    seen = browser.run("[...document.querySelectorAll('#client-table .verdict')].map(cell => cell.textContent)")
    verdicts = page_verdicts(runs[-1])
    assert sorted(seen) == sorted(
        verdict if verdict != "cannot tell" else f"cannot tell nothing below {row['detectable']:.2f}"
        for row, verdict in zip(runs[-1].clients, verdicts.values(), strict=True)
    )


@pytest.mark.full
def test_many_clients_are_drawn_with_their_intervals_in_the_colours_of_their_verdicts(
    browser: Browser, tmp_path: Path
) -> None:
    runs = GALLERY["classes"]()
    browser.open(write_report(runs, tmp_path / "r.html", title="Classes"))
    traces = browser.run(
        "document.getElementById('gain-chart').data.map(t => [t.mode, t.name, t.x.length, t.marker?.color])"
    )
    verdicts = list(page_verdicts(runs[1]).values())
    counts = {v: verdicts.count(v) for v in ("gains", "loses", "cannot tell")}
    dots = {name: (size, tint) for mode, name, size, tint in traces if mode == "markers"}
    assert {name: size for name, (size, _) in dots.items()} == {f"{v} ({n})": n for v, n in counts.items() if n}
    assert len({tint for _, tint in dots.values()}) == len(dots)
    assert sum(size for mode, _, size, _ in traces if mode == "lines") == 3 * len(runs[1].clients)


def test_without_scripts_the_clients_are_a_plain_table(several: Path) -> None:
    inside = re.search(r"<noscript>(.*?)</noscript>", several.read_text(encoding="utf-8"), re.DOTALL)
    assert inside is not None
    apfl = three_methods()[2]
    for row in apfl.clients:
        assert f'<th scope="row">{row["client"]}</th>' in inside[1]
        assert f"<td>{row['verdict']}</td>" in inside[1]


@pytest.mark.full
def test_hiding_a_method_hides_it_everywhere_and_showing_brings_it_back(browser: Browser, several: Path) -> None:
    browser.open(several)
    before = browser.run(f"{SEEN}(2)")
    assert sum(before.values()) == 5  # both curves, the boxes, the own shares and how they moved
    browser.run("document.querySelector('.toggle[data-method=\"2\"]').click()")
    browser.settle()
    assert not any(browser.run(f"{SEEN}(2)").values())
    assert browser.run("[...document.querySelectorAll('tr[data-method=\"2\"]')].every(row => !row.offsetParent)")
    assert browser.run("document.querySelector('.toggle[data-method=\"2\"]').getAttribute('aria-pressed')") == "false"
    assert sum(browser.run(f"{SEEN}(1)").values()) == 3
    browser.run("document.querySelector('.toggle[data-method=\"2\"]').click()")
    browser.settle()
    assert browser.run(f"{SEEN}(2)") == before
    assert browser.errors == []


@pytest.mark.full
def test_the_way_of_the_own_shares_is_drawn_where_they_moved(browser: Browser, several: Path, tmp_path: Path) -> None:
    browser.open(several)
    lines = browser.run("document.getElementById('move-2').data.length")
    assert lines == 2 + 6 + 1  # the band's edges, six clients, the median
    assert browser.run("document.querySelectorAll('#move-charts figure').length") == 1
    assert "50%" in browser.run("document.querySelector('#move-charts small').textContent")
    still = write_report([make_run("FLIX", own_share=True)], tmp_path / "still.html", title="still")
    browser.open(still)
    assert browser.run("document.getElementById('moves').offsetParent === null")
    assert browser.errors == []


@pytest.mark.full
def test_fairness_is_drawn_where_it_was_measured(browser: Browser, several: Path, tmp_path: Path) -> None:
    runs = [
        fair(make_run("FedAvg", models=("global",))),
        fair(make_run("FedBC"), weights=[0.6, 0.26, 0.1, 0.02, 0.01, 0.01]),
    ]
    browser.open(write_report(runs, tmp_path / "fair.html", title="fair"))
    seen = browser.run(f"{SEEN}(1)")
    assert seen["fair-1"]
    assert seen["weight-chart"]
    assert not seen["fair-0"]  # that panel is the other method's
    assert browser.run("document.getElementById('weight-chart').data.map(t => t.x.length)") == [6, 6, 2]
    ticks = browser.run("[...document.querySelectorAll('#weight-chart .ytick text')].map(tick => tick.textContent)")
    assert {"1%", "2%", "5%", "10%", "20%", "50%"} <= set(ticks)
    before = browser.run("document.getElementById('fair-1').data.map(t => t.y.at(-1))")
    browser.run("(s => { s.value = 'global'; s.onchange(); })(document.getElementById('fair-model'))")
    browser.settle()
    after = browser.run("document.getElementById('fair-1').data.map(t => t.y.at(-1))")
    assert before != after
    assert after[0] == pytest.approx(runs[1].history[-1]["global_test_accuracy_smallest"], rel=1e-5)
    assert after[1] == pytest.approx(runs[1].history[-1]["global_test_accuracy_largest"], rel=1e-5)
    browser.run("document.querySelector('.toggle[data-method=\"1\"]').click()")
    browser.settle()
    assert not any(browser.run(f"{SEEN}(1)").values())
    assert browser.errors == []
    browser.open(several)  # nothing of the kind was measured there
    assert browser.run("['fair-rounds', 'fair-weights'].every(id => document.getElementById(id).offsetParent === null)")


@pytest.mark.full
def test_all_methods_can_be_hidden(browser: Browser, several: Path) -> None:
    browser.open(several, width=375)
    browser.run("document.querySelectorAll('.toggle').forEach(button => button.click())")
    browser.settle()
    assert not any(value for i in range(3) for value in browser.run(f"{SEEN}({i})").values())
    assert browser.errors == []


@pytest.mark.full
def test_a_click_on_the_legend_does_the_same_as_the_button(browser: Browser, several: Path) -> None:
    browser.open(several)
    browser.run("document.querySelectorAll('#curve-legend button')[1].click()")
    browser.settle()
    assert browser.run("[...hidden]") == [1]
    assert not any(browser.run(f"{SEEN}(1)").values())
    assert browser.run("document.querySelectorAll('#curve-legend button')[1].getAttribute('aria-pressed')") == "false"
    assert browser.errors == []


@pytest.mark.full
def test_dots_of_methods_that_weigh_alike_are_one_entry_of_the_legend(browser: Browser, tmp_path: Path) -> None:
    runs = [fair(make_run("A")), fair(make_run("B")), fair(make_run("C"), weights=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])]
    browser.open(write_report(runs, tmp_path / "r.html", title="alike"))
    names = "[...document.querySelectorAll('#weight-legend button')].map(entry => entry.title)"
    assert browser.run(names) == ["A; B", "C", "as its data"]


@pytest.mark.full
def test_it_follows_the_system_theme_and_the_button_turns_it(browser: Browser, several: Path) -> None:
    look = (
        "[getComputedStyle(document.body).backgroundColor, document.documentElement.dataset.theme,"
        " document.querySelector('#by-round').layout.font.color, document.querySelector('#boxes').data[2].line.color]"
    )
    browser.open(several, dark=True)
    dark = browser.run(look)
    assert dark[1] == "dark"
    browser.run("document.getElementById('theme').click()")
    browser.settle()
    light = browser.run(look)
    assert light[1] == "light"
    assert all(a != b for a, b in zip(dark, light, strict=True))
    browser.open(several)
    assert browser.run(look) == light


@pytest.mark.full
def test_the_curve_can_be_changed_and_made_logarithmic(browser: Browser, several: Path) -> None:
    browser.open(several)
    names = browser.run("[...document.getElementById('curve').options].map(option => option.textContent)")
    first = ["Test accuracy, deployed model", "Test loss, deployed model", "Train loss, deployed model", "Objective"]
    assert names[:4] == first
    browser.run("(() => { const s = document.getElementById('curve'); s.selectedIndex = 3; s.onchange(); })()")
    browser.run("document.getElementById('log').click()")
    browser.settle()
    assert browser.run("document.getElementById('by-cost').layout.yaxis.type") == "log"
    assert browser.run("document.getElementById('by-round').data.find(t => t.meta === 1).y[0]") == pytest.approx(
        three_methods()[1].history[0]["objective"], abs=1e-4
    )


def test_the_clients_table_sorts_searches_and_grows(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_report([make_run(clients=450)], tmp_path / "r.html", title="Many"))
    rows = "document.querySelectorAll('#client-table tbody tr').length"
    assert browser.run(rows) == 200
    browser.run("document.getElementById('more').click()")
    assert browser.run(rows) == 400
    browser.run("document.querySelectorAll('#client-table th button')[1].click()")
    sizes = browser.run(
        "[...document.querySelectorAll('#client-table tbody td:nth-child(2)')]"
        ".map(c => +c.firstChild.textContent.replace(',', ''))"
    )
    assert sizes == sorted(sizes, reverse=True)
    browser.run("(() => { const f = document.getElementById('find'); f.value = 'site 44'; f.oninput(); })()")
    assert browser.run(rows) == 11  # 44 and 440 to 449


@pytest.mark.full
def test_it_prints(browser: Browser, several: Path) -> None:
    browser.open(several, dark=True)
    assert browser.pdf().startswith(b"%PDF")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.errors == []
