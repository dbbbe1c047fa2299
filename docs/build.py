"""Keep the docs true to the code: `make docs` rewrites the generated parts, `--check` only compares.

Both check every relative link, the keys and defaults of the data sources, every config example (```toml after
`<!-- config -->`), and run the notebooks and the Python examples (```python after `<!-- run -->`; those of a page share
a namespace).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from polyfed.algorithms import REGISTRY
from polyfed.core.errors import PolyfedError
from polyfed.data import sources
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.robust.attack import Attack
from polyfed.engine.robust.settings import Aggregate
from polyfed.studies import leaderboard
from polyfed.studies.config import RunSettings, make_config
from polyfed.studies.search_space import TuneSettings
from polyfed.track import Track

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PART = re.compile(r"(<!-- begin:([\w.-]+) -->\n)(.*?)(<!-- end:\2 -->)", re.S)
FENCE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
EXAMPLE = r"^<!-- {} -->\n```{}\n(.*?)^```"
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)\"""")
HEADING = re.compile(r"^#+ (.+)$", re.M)
SOURCE = re.compile(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", re.S | re.M)
WORDS = {
    "list[float]": "list of numbers",
    "list[str]": "list of words",
    "dict[str, Any]": "table",
    "dict[str, object]": "table",
    "Compressor": "compressor",
    "int": "whole number",
    "float": "number",
    "str": "word",
    "bool": "true or false",
    "Schedule": "number or [schedule]({up}config.md#schedules)",
    "ServerOptimizer": "name of an Optax optimiser",
    "Optimizer": "name of an Optax optimiser",
    "tuple[int, ...]": "list of whole numbers",
    "Any": "number or table",
    "Compute": "word",
    "RuleName": "word",
    "Kind": "word",
    "tuple[str, ...]": "list of words",
}


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    problems: list[str] = []
    for page in pages():
        problems += rewrite(page, check)
    for page in pages():
        problems += [*mistakes(page), *failing_examples(page)]
    problems += wrong_sources(DOCS / "config.md")
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    print("docs: " + (f"{len(problems)} problems" if problems else "up to date, links and examples work"))
    return 1 if problems else 0


def pages() -> list[Path]:
    """The Markdown files and the notebooks of the repository, without hidden folders, runs and what a build made."""
    files: list[Path] = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name[0] != "." and name not in ("runs", "build", "dist")]
        files += [Path(folder, name) for name in names if name.endswith((".md", ".ipynb")) and name[0] != "."]
    return sorted(files)


def rewrite(page: Path, check: bool) -> Iterator[str]:
    """Renew the parts between the markers, or say which are out of date."""
    new = text = page.read_text(encoding="utf-8")
    up = "../" * (len(page.relative_to(DOCS).parts) - 1) if page.is_relative_to(DOCS) else "docs/"
    for part in PART.finditer(text):
        try:
            fresh = generated(part[2], up)
        except KeyError:
            yield f"{where(page, text, part.start())}: nothing generates the part '{part[2]}'"
            continue
        if fresh != part[3]:
            new = new.replace(part[0], part[1] + fresh + part[4])
            if check:
                yield f"{where(page, text, part.start())}: '{part[2]}' is out of date; run `make docs`"
    if new != text and not check:
        page.write_text(new, encoding="utf-8")
        print(f"docs: {page.relative_to(ROOT)} rewritten")


def generated(name: str, up: str) -> str:
    """The part called `run`, `privacy`, `aggregate`, `attack`, `track`, `tune`, `algorithms`, `reproductions`,
    `leaderboard`, `compute.NAME`, `scale.NAME`, `coverage.NAME` or `algorithm.NAME`.
    """
    if name.startswith("compute."):
        return compute(ROOT / "benchmarks" / "results" / f"{name.replace('.', '-')}.json")
    if name.startswith("scale."):
        return scale(json.loads((DOCS / "scale.json").read_text()), name.removeprefix("scale."))
    if name == "advice.draws":
        return subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / "advice.py"), "--table"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    if name.startswith("coverage."):
        return coverage(json.loads((DOCS / "coverage.json").read_text()), name.removeprefix("coverage."))
    if name == "leaderboard":
        return leaderboard.page(leaderboard.Board.read(DOCS / "leaderboard.csv"))
    if name == "reproductions":
        return reproductions()
    if name == "run":
        return fields_table(RunSettings, "key", up)
    if name in ("privacy", "aggregate", "attack", "track"):
        kinds = {"privacy": Privacy, "aggregate": Aggregate, "attack": Attack, "track": Track}
        return fields_table(kinds[name], "key", up)
    if name == "tune":
        return fields_table(TuneSettings, "key", up)
    if name == "algorithms":
        lines = {key: str(cls.__doc__).strip().splitlines()[0] for key, cls in sorted(REGISTRY.items())}
        rows = [(f"[`{key}`]({key}.md)", line) for key, line in lines.items()]
        return table(("name", "what it is"), rows)
    return fields_table(REGISTRY[name.removeprefix("algorithm.")], "hyper-parameter", up)


def scale(found: dict[str, Any], part: str) -> str:
    """What `polyfed bench scale` recorded: where, the populations, the growth, or the writers."""
    mebi, gibi = 2**20, 2**30
    if part == "machine":
        where = found["machine"]
        return (
            f"{where['cores']} cores, {where['memory_gib']} GiB, {where['device']} ({where['processor']}), "
            f"JAX {where['jax']}, {where['date']}; load average {where['load']} at the start.\n"
        )
    if part == "populations":
        heads = ("clients", "ms a round", "ratio", "peak memory, MiB", "clients seen", "store, MiB", "checkpoint, MiB")
        rows = [
            (
                f"{row['clients']:,}",
                f"{1000 * row['round_seconds']:.1f}",
                f"{row['ratio']:.2f}",
                f"{row['peak_memory_bytes'] / mebi:,.0f}",
                f"{row['seen']:,}",
                f"{row['store_bytes'] / mebi:,.1f}",
                f"{row['checkpoint_bytes'] / mebi:,.1f}",
            )
            for row in found["populations"]
        ]
        return table(heads, rows)
    if part == "growth":
        rows = [
            (
                row["axis"],
                f"{row['values'][0]:,} to {row['values'][-1]:,}",
                f"{1000 * row['seconds'][0]:.1f} to {1000 * row['seconds'][-1]:.1f}",
                f"{two_digits(1000 * row['fixed_seconds'])} ms + {two_digits(1e6 * row['slope'])} µs each",
                "none" if row["knee"] is None else two_digits(row["knee"]),
                f"{row['off_the_line']:.0%}",
            )
            for row in found["growth"]
        ]
        return table(("against", "from, to", "ms a round", "line", "knee", "farthest from the line"), rows)
    rows = [
        (
            f"`{row['store']}`",
            f"{row['state_bytes'] / gibi:.2f}",
            f"{row['peak_memory_bytes'] / gibi:.2f}",
            f"{row['round_seconds']:.1f}",
        )
        for row in found["writers"]
    ]
    return table(("store", "states, GiB", "peak memory, GiB", "seconds of the round"), rows)


def coverage(record: dict[str, Any], part: str) -> str:
    """What `benchmarks/coverage.py` recorded: the first law in full, or how often the intervals of all laws hold."""
    if part == "first":
        first = record["chosen"][0]["law"]
        methods = list(record["chosen"][0]["covered"])
        cases = [case for case in record["chosen"] if case["law"] == first]
        cells = [
            [f"{100 * case['covered'][method]:.1f}% ({case['width'][method]:.3f})" for method in methods]
            for case in cases
        ]
        rows = [(f"{case['rows']:,}", case["metric"], *own) for case, own in zip(cases, cells, strict=True)]
        return table(("rows", "metric", *methods), rows)
    by_law: dict[tuple[str, str], list[str]] = {}
    for case in record[part]:
        by_law.setdefault((case["law"], f"{case['rows']:,}"), []).append(f"{100 * case['covered']['polyfed']:.1f}%")
    heads = [case["metric"] for case in record[part][:3]]
    return table(("law", "rows", *heads), [(*law, *cells) for law, cells in by_law.items()])


def compute(file: Path) -> str:
    """What `benchmarks/compute.py` recorded of float32 and bfloat16 on a machine."""
    if not file.exists():
        return f"Not measured yet: `python benchmarks/compute.py --json {file.relative_to(ROOT)}`, then `make docs`.\n"
    found = json.loads(file.read_text())
    where = found["machine"]
    rows = [
        (
            case["title"],
            f"{case['rounds']} x {case['cohort']} of {case['clients']}",
            f"{in_percent(summary['accuracy'], summary['spread_over_seeds'])} %",
            f"{100 * summary['accuracy_bfloat16']:.2f} %",
            in_percent(summary["difference"], summary["error"], "+"),
            f"{1000 * summary['round_seconds']:.3g}",
            f"{1000 * summary['round_seconds_bfloat16']:.3g}",
            f"{summary['times_as_fast']:.2f}",
        )
        for case in found["cases"].values()
        for summary in [case["summary"]]
    ]
    seeds = " or ".join(str(count) for count in sorted({case["seeds"] for case in found["cases"].values()}))
    heads = ("run", "rounds x clients", "float32", "bfloat16", "difference, points", "ms a round", "bfloat16", "times")
    return f"{where['devices']} x {where['device']}, JAX {where['jax']}, {found['date']}, {seeds} seeds.\n\n" + table(
        heads, rows
    )


def in_percent(share: float, spread: float | None, sign: str = "") -> str:
    return f"{100 * share:{sign}.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def two_digits(number: float) -> str:
    """Rounded to two digits, without an exponent."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.2g}"


def reproductions() -> str:
    """A row per reproduced figure: how many of its claims hold, do not hold, or are undecided."""
    verdicts = ("holds", "does not hold", "undecided")
    rows, sums = [], dict.fromkeys(verdicts, 0)
    for file in sorted((DOCS / "reproductions").rglob("claims.json"), key=lambda f: [*map(len, f.parts), *f.parts]):
        record = json.loads(file.read_text())
        page = file.with_name("README.md")
        title = page.read_text().splitlines()[0].removeprefix("# ").partition(": ")[2]
        held = [sum(claim["verdict"] == verdict for claim in record["claims"]) for verdict in verdicts]
        sums = {verdict: sums[verdict] + count for verdict, count in zip(verdicts, held, strict=True)}
        link = page.relative_to(DOCS / "reproductions").as_posix()
        rows.append((f"[{record['experiment']}]({link})", title, *map(str, held)))
    rows.append(("all", "", *map(str, sums.values())))
    return table(("figure", "what it shows", "hold", "do not hold", "undecided"), rows)


def fields_table(cls: type, title: str, up: str) -> str:
    """A row per field: the string under it says what it is.

    A class's own fields come before those of its bases. One that only changes a base's default stays with the others of
    the base.
    """
    declared = [fields_of(part) for part in cls.__mro__ if "__dataclass_fields__" in vars(part)]
    kinds = {name: field.annotation for part in reversed(declared) for name, (field, _) in part.items()}
    rows: dict[str, tuple[str, ...]] = {}
    for place, part in enumerate(declared):
        for name, (field, text) in part.items():
            if name in rows or any(text == base[name][1] for base in declared[place + 1 :] if name in base):
                continue
            default = shown(getattr(cls, name)) if field.value else "required"
            rows[name] = f"`{name}`", in_words(kinds[name]).replace("{up}", up), default, text
    return table((title, "type", "default", "meaning"), list(rows.values()))


def fields_of(cls: type) -> dict[str, tuple[ast.AnnAssign, str]]:
    """The fields that a class declares itself, with the strings under them."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    fields = {}
    for item, after in pairwise(body.body):
        if isinstance(item, ast.AnnAssign):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            assert text, f"{cls.__name__}.{ast.unparse(item.target)} has no docstring"
            fields[ast.unparse(item.target)] = item, " ".join(str(text).split())
    return fields


def in_words(annotation: ast.expr) -> str:
    """A type as a reader of a config calls it."""
    if isinstance(annotation, ast.BinOp):
        sides = (annotation.left, annotation.right)
        return " or ".join(in_words(side) for side in sides if ast.unparse(side) != "None")
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        options = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return " or ".join(shown(ast.literal_eval(option)) for option in options)
    return WORDS[ast.unparse(annotation)]


def shown(value: Any) -> str:
    """A default as TOML writes it; none, where it has none."""
    if dataclasses.is_dataclass(value):
        return f"`{{{', '.join(f'{name} = {inner}' for name, inner in vars(value).items())}}}`"
    return "none" if value is None else f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def table(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headers, ("---",) * len(headers), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def mistakes(page: Path) -> Iterator[str]:
    """What is wrong with a page's links and configs."""
    yield from broken_links(page)
    yield from bad_configs(page)


def broken_links(page: Path) -> Iterator[str]:
    """Relative links and images whose file or heading does not exist."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)  # same length: positions stay
    for link in LINK.finditer(prose):
        target, _, anchor = (link[1] or link[2]).partition("#")
        if re.match(r"\w+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            yield f"{where(page, text, link.start())}: there is no {target}"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{where(page, text, link.start())}: {file.name} has no heading #{anchor}"


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def bad_configs(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(EXAMPLE.format("config", "toml"), text, re.S | re.M):
        try:
            make_config(tomllib.loads(block[1]))
        except (PolyfedError, tomllib.TOMLDecodeError) as error:
            yield f"{where(page, text, block.start())}: {error}"


def examples(text: str) -> list[re.Match[str]]:
    """The Python examples of a page that are run."""
    return list(re.finditer(EXAMPLE.format("run", "python"), text, re.S | re.M))


def program(page: Path) -> str:
    """A page's examples as one program, each line where it stands in the page; of a notebook, its cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    blocks = examples(text)
    return "".join(
        "\n" * (text.count("\n", 0, block.start(1)) - (text.count("\n", 0, before.end(1)) if before else 0)) + block[1]
        for before, block in zip([None, *blocks], blocks, strict=False)
    )


def failing_examples(page: Path) -> Iterator[str]:
    """Run a page's examples in an empty folder."""
    code = program(page)
    if not code:
        return
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "example.py"
        script.write_text(code, encoding="utf-8")
        done = subprocess.run([sys.executable, script.name], cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        line = re.findall(r'example.py", line (\d+)', done.stderr)
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        yield f"{page.relative_to(ROOT)}:{line[-1] if line else 1}: the example fails: {last}"


def wrong_sources(page: Path) -> Iterator[str]:
    """The keys and defaults in the tables of [data], against the functions that read them."""
    row = re.compile(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \| [^|]* \|$", re.M)  # key, type, default, meaning
    documented = {name: dict(row.findall(part)) for name, part in SOURCE.findall(page.read_text(encoding="utf-8"))}
    for name, (_, function) in sources().items():
        known = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        real = {p.name: "required" if p.default is p.empty else shown(p.default) for p in known}
        keys = {key for key, _ in set(real.items()) ^ set(documented.get(name, {}).items())}
        if keys:
            yield f"{page.relative_to(ROOT)}: source {name} has other keys or defaults: {', '.join(sorted(keys))}"


def where(page: Path, text: str, position: int) -> str:
    return f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}"


if __name__ == "__main__":
    sys.exit(main())
