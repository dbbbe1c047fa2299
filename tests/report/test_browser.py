"""The page in a real browser: it opens offline without an error, draws, hides, fits and turns dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polyfed.report import write_report
from polyfed.studies.run_directory import RunRecord
from tests.report.browser import Browser
from tests.report.samples import fair, make_run, moving

pytestmark = pytest.mark.browser

DRAWN = """[...document.querySelectorAll('.js-plotly-plot')].filter(c => c.offsetParent).map(c => {
  const svg = c.querySelector('svg.main-svg').getBoundingClientRect(), box = c.getBoundingClientRect();
  return {id: c.id, width: svg.width, height: svg.height, room: box.width,
          marks: c.querySelectorAll('.trace path, .trace .point, .boxes path').length};
})"""
# Whether any trace of a method is on screen, chart by chart.
SEEN = """(method => Object.fromEntries([...document.querySelectorAll('.js-plotly-plot')].map(c => [
  c.id, Boolean(c.offsetParent) && c.data.some(t => t.meta === method && ![false, 'legendonly'].includes(t.visible))
])))"""


def hospitals() -> list[RunRecord]:
    local = make_run("Local", algorithm="local", models=("personal", "alone"), bits_per_round=0, lift=0.0)
    seeds = [moving(make_run("APFL", seed=seed, own_share=True)) for seed in (0, 1)]
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


CASES: dict[str, Any] = {
    "several": hospitals,
    "one-run": lambda: [make_run("APFL", own_share=True)],
    "one-client": lambda: [moving(make_run("APFL", clients=1, own_share=True))],
    "two-thousand": lambda: [moving(make_run(x, clients=2000, own_share=True, rounds=40)) for x in ("APFL", "Ditto")],
    "hundred-regression": lambda: [make_run("FedAvg", clients=100, metric="error", lift=-0.02)],
    "no-alone": lambda: [make_run("FedAvg", models=("global",), splits=("train", "test"))],
    "twelve-methods": lambda: [make_run(f"A method with a long name {i}", lift=i / 200) for i in range(12)],
    "evil-names": evil,
    "fair": lambda: [fair(make_run("FedAvg", models=("global",))), fair(make_run("FedBC"))],
    "broken": broken,
    "no-history": lambda: [RunRecord(r.path, r.config, [], r.clients, r.summary) for r in [make_run()]],
}


@pytest.fixture(params=CASES, ids=list(CASES))
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_report(CASES[request.param](), tmp_path / "report.html", title=request.param)


@pytest.fixture
def several(tmp_path: Path) -> Path:
    return write_report(hospitals(), tmp_path / "report.html", title="Hospitals")


def test_it_opens_without_an_error_or_a_request_and_fits_a_phone(browser: Browser, page: Path) -> None:
    for width in (1280, 375):
        browser.open(page, width=width, height=800)
        assert browser.errors == []
        assert browser.requests == [page.resolve().as_uri()]
        assert browser.run("document.documentElement.scrollWidth") == width
        for chart in browser.run(DRAWN):
            assert chart["width"] == pytest.approx(chart["room"], abs=1.5), chart
            assert chart["height"] > 80, chart
        assert browser.run("document.querySelectorAll('#client-table tbody tr').length") >= 1


def test_every_chart_is_drawn(browser: Browser, several: Path) -> None:
    browser.open(several)
    charts = {chart["id"]: chart for chart in browser.run(DRAWN)}
    assert {"by-round", "by-bits", "gain-1", "gain-2", "boxes", "own-chart", "move-2"} <= set(charts)
    for chart in charts.values():
        assert chart["marks"] > 0, chart


def test_hiding_a_method_hides_it_everywhere_and_showing_brings_it_back(browser: Browser, several: Path) -> None:
    browser.open(several)
    before = browser.run(f"{SEEN}(2)")
    assert sum(before.values()) == 6  # both curves, its own gains, the boxes, the own shares and how they moved
    browser.run("document.querySelector('.toggle[data-method=\"2\"]').click()")
    browser.settle()
    assert not any(browser.run(f"{SEEN}(2)").values())
    assert browser.run("[...document.querySelectorAll('tr[data-method=\"2\"]')].every(row => !row.offsetParent)")
    assert "APFL" not in browser.run("document.querySelector('#client-table thead').textContent")
    assert browser.run("document.querySelector('.toggle[data-method=\"2\"]').getAttribute('aria-pressed')") == "false"
    assert sum(browser.run(f"{SEEN}(1)").values()) == 4
    browser.run("document.querySelector('.toggle[data-method=\"2\"]').click()")
    browser.settle()
    assert browser.run(f"{SEEN}(2)") == before
    assert browser.errors == []


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


def test_fairness_is_drawn_where_it_was_measured(browser: Browser, several: Path, tmp_path: Path) -> None:
    runs = [
        fair(make_run("FedAvg", models=("global",))),
        fair(make_run("FedBC"), weights=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1]),
    ]
    browser.open(write_report(runs, tmp_path / "fair.html", title="fair"))
    seen = browser.run(f"{SEEN}(1)")
    assert seen["fair-1"]
    assert seen["weight-chart"]
    assert not seen["fair-0"]  # that panel is the other method's
    assert browser.run("document.getElementById('weight-chart').data.map(t => t.x.length)") == [6, 6, 2]
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
    assert browser.run("document.getElementById('fairness').offsetParent === null")


def test_all_methods_can_be_hidden(browser: Browser, several: Path) -> None:
    browser.open(several, width=375)
    browser.run("document.querySelectorAll('.toggle').forEach(button => button.click())")
    browser.settle()
    assert not any(value for i in range(3) for value in browser.run(f"{SEEN}({i})").values())
    assert browser.errors == []


def test_a_click_on_the_legend_does_the_same_as_the_button(browser: Browser, several: Path) -> None:
    browser.open(several)
    browser.run("document.getElementById('by-round').scrollIntoView()")
    spot = browser.run(
        "(() => { const b = [...document.querySelectorAll('#by-round .legendtoggle')][1].getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        where = {"x": spot[0], "y": spot[1], "button": "left", "clickCount": 1}
        browser.send("Input.dispatchMouseEvent", type=kind, **where)
    browser.run("new Promise(done => setTimeout(done, 800))")  # Plotly waits for a second click first
    assert browser.run("[...hidden]") == [1]
    assert not any(browser.run(f"{SEEN}(1)").values())
    assert browser.errors == []


def test_it_follows_the_system_theme_and_the_button_turns_it(browser: Browser, several: Path) -> None:
    look = (
        "[getComputedStyle(document.body).backgroundColor, document.documentElement.dataset.theme,"
        " document.querySelector('#by-round').layout.font.color, document.querySelector('#boxes').data[1].line.color]"
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


def test_the_curve_can_be_changed_and_made_logarithmic(browser: Browser, several: Path) -> None:
    browser.open(several)
    names = browser.run("[...document.getElementById('curve').options].map(option => option.textContent)")
    assert names[:3] == ["Test accuracy, deployed model", "Train loss, deployed model", "Objective"]
    browser.run("(() => { const s = document.getElementById('curve'); s.selectedIndex = 2; s.onchange(); })()")
    browser.run("document.getElementById('log').click()")
    browser.settle()
    assert browser.run("document.getElementById('by-bits').layout.yaxis.type") == "log"
    assert browser.run("document.getElementById('by-round').data.find(t => t.meta === 1).y[0]") == pytest.approx(
        hospitals()[1].history[0]["objective"], abs=1e-4
    )


def test_the_clients_table_sorts_searches_and_grows(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_report([make_run(clients=450)], tmp_path / "r.html", title="Many"))
    rows = "document.querySelectorAll('#client-table tbody tr').length"
    assert browser.run(rows) == 200
    browser.run("document.getElementById('more').click()")
    assert browser.run(rows) == 400
    browser.run("document.querySelectorAll('#client-table th button')[1].click()")
    sizes = browser.run(
        "[...document.querySelectorAll('#client-table tbody td:nth-child(2)')].map(c => +c.textContent)"
    )
    assert sizes == sorted(sizes, reverse=True)
    browser.run("(() => { const f = document.getElementById('find'); f.value = 'site 44'; f.oninput(); })()")
    assert browser.run(rows) == 11  # 44 and 440 to 449


def test_it_prints(browser: Browser, several: Path) -> None:
    browser.open(several, dark=True)
    assert browser.pdf().startswith(b"%PDF")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.errors == []
