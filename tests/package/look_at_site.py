"""Look at every page of the site in Chromium: `python -m tests.package.look_at_site build/site`.

No page logs an error, asks for anything elsewhere, has a picture that does not load or a link that leads nowhere, or is
wider than a phone; both colour schemes are there, and the search finds "Scafflix".
"""

from __future__ import annotations

import functools
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from tests.report.browser import Browser, find_browser

WIDTHS = (400, 1280)
STATE = """(() => ({
  links: [...document.querySelectorAll('article a[href], nav a[href]')].map(link => link.href),
  images: [...document.images].filter(image => !(image.complete && image.naturalWidth)).map(image => image.src),
  ids: [...document.querySelectorAll('[id]')].map(found => found.id),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
}))()"""
LOAD = (
    "Promise.all([...document.images].map(image => { image.loading = 'eager'; return image.decode().catch(() => 0) }))"
)
SEARCH = """(async () => {
  document.querySelector('[data-md-toggle=search]').click();
  const box = document.querySelector('[data-md-component=search-query]');
  box.focus(); box.value = 'Scafflix'; box.dispatchEvent(new Event('keyup', {bubbles: true}));
  box.dispatchEvent(new Event('input', {bubbles: true}));
  for (let wait = 0; wait < 100; wait++) {
    const found = [...document.querySelectorAll('.md-search-result__link')].map(link => link.href);
    if (found.length) return found;
    await new Promise(done => setTimeout(done, 100));
  }
  return [];
})()"""


def main() -> int:
    site, program = Path(sys.argv[1]), find_browser()
    if program is None:
        print("site: not looked at, as there is no Chromium; `make browser` installs it", file=sys.stderr)
        return 1
    handler = functools.partial(_Quiet, directory=str(site))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory() as folder,
        Browser(program, Path(folder) / "profile") as browser,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            problems = list(looked_at(site, f"http://127.0.0.1:{server.server_port}/", browser))
        finally:
            server.shutdown()
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    return 1 if problems else 0


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def looked_at(site: Path, home: str, browser: Browser) -> Iterator[str]:
    pages = [page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html")) if page.name != "report.html"]
    pages = [page.removesuffix("index.html") for page in pages if page != "404.html"]
    ids: dict[str, set[str]] = {}
    links: list[tuple[str, str]] = []
    for page in pages:
        browser.open(home + page, width=min(WIDTHS))
        browser.run(LOAD)
        state = browser.run(STATE)
        yield from (f"{page}: {error}" for error in browser.errors)
        yield from (
            f"{page}: asks for {url}" for url in browser.requests if not url.startswith((home, "data:", "blob:"))
        )
        yield from (f"{page}: the picture {url} does not load" for url in state["images"])
        if state["wide"] > 0:
            yield f"{page}: {state['wide']} pixels wider than a window of {min(WIDTHS)}"
        ids[page] = set(state["ids"])
        links += [(page, url) for url in state["links"]]
    for page, url in sorted(set(links)):
        place, anchor = urldefrag(url)
        if not place.startswith(home):
            continue
        inside = unquote(urlsplit(place).path).lstrip("/")
        file = site / inside / ("index.html" if not inside or inside.endswith("/") else "")
        if not file.is_file():
            yield f"{page}: the link to {inside} leads nowhere"
        elif anchor and inside in ids and unquote(anchor) not in ids[inside]:
            yield f"{page}: {inside} has no heading #{anchor}"
    yield from first_page(home, browser)
    print(f"site: {len(pages)} pages and {len(set(links))} links looked at")


def first_page(home: str, browser: Browser) -> Iterator[str]:
    """Both colour schemes follow the system's on a first visit, the report is shown, and the search works."""
    backgrounds = set()
    for dark in (False, True):
        browser.run("localStorage.clear()")
        browser.open(home, width=max(WIDTHS), dark=dark)
        backgrounds.add(
            browser.run("getComputedStyle(document.body).backgroundColor + document.body.dataset.mdColorScheme")
        )
        shown = browser.run("document.querySelector('iframe.live-report').contentDocument.title")
        if not shown:
            yield "the first page does not show the report"
    if len(backgrounds) < 2:
        yield f"light and dark look alike: {backgrounds}"
    found = browser.run(SEARCH)
    if not any("scafflix" in url for url in found):
        yield f"the search does not find Scafflix, but {found}"


if __name__ == "__main__":
    sys.exit(main())
