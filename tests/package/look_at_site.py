"""Look at every page of the site in Chromium: `python -m tests.package.look_at_site build/site`.

No page logs an error, asks for anything elsewhere, has a picture that does not load or a link that leads nowhere, or is
wider than a phone; both colour schemes are there, and the search finds the page of "Scafflix" first.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from tests.report.browser import Browser, find_browser

WIDTHS = (400, 1280)
BROWSERS = 2
"""Each looks at its share of the pages, as a page waits for the disk, for frames and for pictures."""
STATE = """(() => ({
  links: [...document.querySelectorAll('article a[href], nav a[href]')].map(link => link.href),
  images: [...document.images].filter(image => !(image.complete && image.naturalWidth)).map(image => image.src),
  ids: [...document.querySelectorAll('[id]')].map(found => found.id),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
}))()"""
LOAD = (
    "Promise.all([...document.images].map(image => { image.loading = 'eager'; return image.decode().catch(() => 0) }))"
)
WITHOUT_SEARCH = "window.Worker = class extends EventTarget { postMessage() {} terminate() {} }"
"""Each page has a worker make its own index of the whole site when it opens. Once is enough."""
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
    with ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        profiles = [Path(stack.enter_context(tempfile.TemporaryDirectory())) / "profile" for _ in range(BROWSERS)]
        browsers = [stack.enter_context(Browser(program, profile)) for profile in profiles]
        problems = list(looked_at(site, f"http://127.0.0.1:{server.server_port}/", browsers))
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    return 1 if problems else 0


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Page:
    """What a page shows, and what is wrong with it alone."""

    ids: set[str]
    links: list[str]
    problems: list[str]


def looked_at(site: Path, home: str, browsers: list[Browser]) -> Iterator[str]:
    begun = time.monotonic()
    names = [page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html")) if page.name != "report.html"]
    names = [page.removesuffix("index.html") for page in names if page != "404.html"]
    with_search = [browser.before_pages(WITHOUT_SEARCH) for browser in browsers]
    with ThreadPoolExecutor(len(browsers)) as pool:
        shares = pool.map(
            lambda place: {name: seen(name, home, browsers[place]) for name in names[place :: len(browsers)]},
            range(len(browsers)),
        )
        pages = {name: page for share in shares for name, page in share.items()}
    for page in pages.values():
        yield from page.problems
    links = {(name, url) for name, page in pages.items() for url in page.links}
    for name, url in sorted(links):
        place, anchor = urldefrag(url)
        if not place.startswith(home):
            continue
        inside = unquote(urlsplit(place).path).lstrip("/")
        file = site / inside / ("index.html" if not inside or inside.endswith("/") else "")
        if not file.is_file():
            yield f"{name}: the link to {inside} leads nowhere"
        elif anchor and inside in pages and unquote(anchor) not in pages[inside].ids:
            yield f"{name}: {inside} has no heading #{anchor}"
    with_search[0]()
    yield from first_page(home, browsers[0])
    print(f"site: {len(pages)} pages and {len(links)} links looked at in {time.monotonic() - begun:.0f} s")


def seen(name: str, home: str, browser: Browser) -> Page:
    """One page on a phone."""
    browser.open(home + name, width=min(WIDTHS))
    browser.run(LOAD)
    state = browser.run(STATE)
    elsewhere = [url for url in browser.requests if not url.startswith((home, "data:", "blob:"))]
    problems = [f"{name}: {error}" for error in browser.errors]
    problems += [f"{name}: asks for {url}" for url in elsewhere]
    problems += [f"{name}: the picture {url} does not load" for url in state["images"]]
    if state["wide"] > 0:
        problems.append(f"{name}: {state['wide']} pixels wider than a window of {min(WIDTHS)}")
    return Page(set(state["ids"]), state["links"], problems)


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
    if not found or urlsplit(found[0]).path != "/algorithms/scafflix/":
        yield f"the search does not find the page of Scafflix first, but {found}"


if __name__ == "__main__":
    sys.exit(main())
