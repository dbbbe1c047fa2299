"""What MkDocs calls while it builds the site."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import pages

REPORT = pages.ROOT / "build" / "report" / "report.html"
BOOKS = pages.ROOT / "build" / "notebooks"
"""The demo's report, and the notebooks with their outputs: `make site` makes both before it builds."""
LIVE = "<!-- live report -->"
FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.S)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and the report."""
    books = [BOOKS / source.name for source in sorted((pages.DOCS / "notebooks").glob("*.ipynb"))]
    for needed in (REPORT, *books):
        if not needed.exists():
            raise PluginError(f"{needed} is missing; `make site` makes it")
    made = [*pages.reference(), *pages.outside(), ("report.html", REPORT.read_bytes())]
    for book in books:
        made += pages.notebook(book)
    for place, content in made:
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links out of docs/ to the pages of these files, show the report, and let search find methods first."""
    page.meta.setdefault("search", {"boost": 5 if page.file.src_uri.startswith("algorithms/") else 1})
    frame = '<iframe class="live-report" src="report.html" title="The demo\'s report"></iframe>'
    return pages.relinked(markdown, page.file.src_uri).replace(LIVE, frame)


def on_page_content(content: str, page: Any, config: Any, files: Files) -> str:
    """Formulas become MathML, which browsers show by themselves."""

    def as_mathml(found: re.Match[str]) -> str:
        block = found[1] == "div"
        formula = convert(html.unescape(found[2]), display="block" if block else "inline")
        return f'<div class="formula">{formula}</div>' if block else formula

    return FORMULA.sub(as_mathml, content)
