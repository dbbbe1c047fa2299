"""The site's pages that no one writes: the API reference, the notebooks with their outputs, files outside docs/."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md")
"""Pages of the repository that are pages of the site, too."""
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"
FENCE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def reference() -> Iterator[tuple[str, str]]:
    """A page for every public name, one for every public package, one for every algorithm, and their list."""
    import polyfed as pf

    homes = {name: f"polyfed.{place}.{name}" for name, place in pf._HOMES.items()}
    lines = ["# Reference\n", "Everything that `import polyfed as pf` offers.\n"]
    rows: list[str] = []
    for name in pf.__all__:
        value = getattr(pf, name)
        yield (
            f"reference/{name}.md",
            package(f"pf.{name}", value) if isinstance(value, ModuleType) else entry(f"pf.{name}", homes[name]),
        )
        rows.append(f"| [`pf.{name}`]({name}.md) | {first_line(value)} |\n")
    lines += ["| name | what it is |\n| --- | --- |\n", *rows, "\n## Algorithms\n\n", "| name | what it is |\n"]
    lines.append("| --- | --- |\n")
    for name, method in sorted(pf.algorithms.REGISTRY.items()):
        own = method.__name__
        links = f"[Formula, and when to use it](../algorithms/{name}.md).\n\n" if has_page(name) else ""
        home = f"{method.__module__}.{own}\n    options:\n      show_root_heading: false"
        yield f"reference/algorithm.{own}.md", entry(f"pf.algorithms.{own}", home, links + signature(method))
        lines.append(f"| [`pf.algorithms.{own}`](algorithm.{own}.md) | {first_line(method)} |\n")
    yield "reference/index.md", "".join(line if line.endswith("\n\n") or "|" in line else f"{line}\n" for line in lines)


def signature(method: type[Any]) -> str:
    """How a method is made; static analysis does not see that `@algorithm` makes a dataclass."""
    fields = "".join(f"    {field.name}={field.default!r},\n" for field in dataclasses.fields(method))
    return f"```python\n{method.__name__}(\n{fields})\n```\n\n"


def has_page(name: str) -> bool:
    return (DOCS / "algorithms" / f"{name}.md").exists()


def entry(title: str, home: str, before: str = "") -> str:
    return f"# {title}\n\n{before}::: {home}\n"


def package(title: str, module: ModuleType) -> str:
    """The functions and classes that a package offers, each where it is defined."""
    parts = [f"# {title}\n\n{first_line(module)}\n"]
    for name in sorted(getattr(module, "__all__", ())):
        value = getattr(module, name)
        home = getattr(value, "__module__", None)
        if callable(value) and home is not None and home.startswith("polyfed.") and hasattr(value, "__qualname__"):
            if home.startswith("polyfed.algorithms.") and name in algorithm_names():
                continue  # these have pages of their own
            parts.append(f"::: {home}.{value.__qualname__}\n")
    return "\n".join(parts)


def algorithm_names() -> set[str]:
    from polyfed.algorithms import REGISTRY

    return {method.__name__ for method in REGISTRY.values()}


def first_line(value: object) -> str:
    text = (value.__doc__ or "").strip()
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", r"\|")


def notebook(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """A notebook's page: its text, its code, and what its cells showed when it was run."""
    name, parts = path.stem, []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(f"{source}\n")
            continue
        parts.append(f"```python\n{source}\n```\n")
        for place, output in enumerate(cell.get("outputs", [])):
            shown, picture = output_text(output), output.get("data", {}).get("image/png")
            if picture is not None:
                image = f"{name}-{number}-{place}.png"
                yield f"notebooks/{image}", base64.b64decode(picture)
                shown = f"![What the cell above draws]({image})\n"
            if shown:
                parts.append(shown)
    parts.append(f'<a href="../{name}.ipynb" download>This notebook as a file</a>, to run and change.\n')
    yield f"notebooks/{name}.md", "\n".join(parts)


def output_text(output: dict[str, Any]) -> str:
    """What a cell shows, but for pictures: a table as HTML, and text as it is."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```\n" if output["name"] == "stdout" else ""
    data = {kind: "".join(shown) for kind, shown in output.get("data", {}).items() if kind.startswith("text/")}
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.S)
        html = re.sub(r"\n\s*\n", "\n", html)
        return f'<div class="notebook-output">\n{html}\n</div>\n'
    return f"```text\n{data['text/plain']}\n```\n" if "text/plain" in data else ""


def outside() -> Iterator[tuple[str, str]]:
    """Pages for the files outside docs/ that pages link to."""
    for name in PROJECT:
        yield f"project/{name}", (ROOT / name).read_text(encoding="utf-8")
    seen: set[str] = set()
    waiting = [*DOCS.rglob("*.md"), *(ROOT / name for name in PROJECT)]
    while waiting:
        page = waiting.pop()
        for _, target, _, _ in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            file = (page.parent / target).resolve()
            if ":" in target or file.is_relative_to(DOCS) or not file.is_relative_to(ROOT) or not file.exists():
                continue
            inside = file.relative_to(ROOT).as_posix()
            if inside in PROJECT or inside in seen:
                continue
            seen.add(inside)
            waiting += [file] if file.suffix == ".md" else []
            text = file.read_text(encoding="utf-8") if file.suffix == ".md" else f"# {inside}\n\n{source_of(file)}"
            yield source_page(inside), HIDDEN + text


def source_page(inside: str) -> str:
    return f"source/{inside}" if inside.endswith(".md") else f"source/{inside}.md"


def origin(page: str) -> Path | None:
    """The file that a page shows; None for one that is made, or that is code."""
    inside = re.sub(r"^(project|source)/", "", page)
    file = (DOCS if inside == page else ROOT) / inside
    return file if file.exists() else None


def source_of(file: Path) -> str:
    """A file's text; of a folder, that of its `__init__.py` and the names of its files."""
    if file.is_dir():
        names = "".join(f"- `{inner.name}`\n" for inner in sorted(file.iterdir()) if inner.name[0] not in "_.")
        first = file / "__init__.py"
        return (source_of(first) if first.exists() else "") + "\n" + names
    kind = {".py": "python", ".toml": "toml", ".json": "json"}.get(file.suffix, "text")
    return f"````{kind}\n{file.read_text(encoding='utf-8')}````\n"


def relinked(markdown: str, page: str) -> str:
    """The text with links to files outside docs/ that lead to their pages; `page` is where the text stands."""
    folder, depth = origin(page), page.count("/")
    if page.startswith("notebooks/"):
        folder = DOCS / page
    if folder is None:
        return markdown

    def lead(link: re.Match[str]) -> str:
        before, target, anchor, after = link[1], link[2], link[3] or "", link[4]
        file = (folder.parent / target).resolve()
        if re.match(r"\w+:", target) or not file.is_relative_to(ROOT) or not file.exists():
            return link[0]
        if file.is_relative_to(DOCS):
            place = re.sub(r"\.ipynb$", ".md", file.relative_to(DOCS).as_posix())
            place += "/README.md" if file.is_dir() else ""
        else:
            inside = file.relative_to(ROOT).as_posix()
            place = f"project/{inside}" if inside in PROJECT else source_page(inside)
        return f"{before}{'../' * depth}{place}{anchor}{after}"

    parts, last = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(lead, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, LINK.sub(lead, markdown[last:])])
