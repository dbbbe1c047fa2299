"""The tables of a run, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chart import draw
from measure import AGREE
from works import OF_FEDAVG, ON_DEVICE, SHARE, TIMES, WORKS

from polyfed.bench.work import TOLERANCE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CPU, GPU = HERE / "results" / "cpu.json", HERE / "results" / "gpu.json"
TEMPLATE = HERE / "page.txt"
PAGE, CHART = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "images" / "benchmarks.png"
OURS = "polyfed"

Record = dict[str, Any]
Goal = tuple[str, str, str, bool]
"""What, how much is asked, what was measured, whether it is met."""
FIGURES = {"client_updates_per_second": "client updates/s", "tflops": "TFLOP/s"}


def keep(record: Record) -> None:
    CPU.parent.mkdir(exist_ok=True)
    CPU.write_text(json.dumps(record, indent=1) + "\n")


def write_page() -> None:
    """docs/benchmarks.md and its chart, from the figures that were kept."""
    record = json.loads(CPU.read_text())
    gaps = missing(record)
    parts = {
        "seconds": _seconds(record),
        "gaps": f"\nNot measured:\n\n{gaps}\n" if gaps else "",
        "details": _rounds(record),
        "goals": _goals(goals(record)),
        "gpu": on_gpu(json.loads(GPU.read_text())) if GPU.exists() else "",
        "startup": STARTUP.format(**record["startup"]),
        "compiling": _compiling(record["startup"]),
    }
    PAGE.write_text(TEMPLATE.read_text().format(**facts(record), **parts))
    draw(record, CHART)


def tables(record: Record) -> str:
    """All tables of a run, in Markdown."""
    found = []
    if record["works"]:
        found += ["## Rounds", "", _rounds(record), "", "## Goals", "", _goals(goals(record))]
        if gaps := missing(record):
            found += ["", "Not measured:", "", gaps]
    if "startup" in record:
        startup = record["startup"]
        found += ["", "## Start-up", "", STARTUP.format(**startup), "", _compiling(startup)]
    return "\n".join(found).strip()


def missing(record: Record) -> str:
    """A line for each framework that was not measured on a work."""
    gaps = [f"({work['key']}) {gap}" for work in record["works"] for gap in work["gaps"]]
    return "\n".join(f"- {gap}" for gap in [*gaps, *left_out(record)])


def left_out(record: Record) -> list[str]:
    """The works, and the peers of those that were run, that a part of a run did not ask for."""
    run = {work["key"]: work for work in record["works"]}
    found = [f"({key}) {work.name}: not part of this run" for key, work in WORKS.items() if key not in run]
    for key, work in run.items():
        told = " ".join([*(timing["framework"] for timing in work["timings"]), *work["gaps"]])
        names = [peer.environment.framework for peer in WORKS[key].peers]
        found += [f"({key}) {name}: not part of this run" for name in names if name not in told]
    return found


def _seconds(record: Record) -> str:
    """A row for each work, a column for each framework."""
    names = list(dict.fromkeys(timing["framework"] for work in record["works"] for timing in work["timings"]))
    rows = []
    for work in record["works"]:
        ours, *others = work["timings"]
        cells = {OURS: f"{ours['seconds']:.3g}"}
        for peer in others:
            times = peer["seconds"] / ours["seconds"]
            cells.setdefault(peer["framework"], f"{peer['seconds']:.3g} ({times:.2f}x)")
        rows.append((f"({work['key']}) {work['name']}", *(cells.get(name, "-") for name in names)))
    return table(("work", *names), rows)


def _rounds(record: Record) -> str:
    """A row for each work and framework."""
    rows = []
    for work in record["works"]:
        ours = work["timings"][0]["seconds"]
        for number, timing in enumerate(work["timings"]):
            memory = timing["memory_mib"]
            rows.append(
                (
                    f"({work['key']}) {work['name']}" if number == 0 else "",
                    _named(timing, work["timings"][0]["method"]),
                    f"{timing['seconds']:.3g}",
                    f"{timing['seconds'] / ours:.2f}",
                    f"{timing['updates_per_second']:,.0f}",
                    f"{timing['share']:.0%}",
                    "-" if memory is None else f"{memory:,.0f}",
                    str(timing["lines"]),
                    f"{timing['loss']:.4f}",
                )
            )
    titles = ("work", "framework", "s/round", "times ours", "client updates/s", "of the product rate")
    return table((*titles, "MiB", "lines", "final loss"), rows)


def _named(timing: dict[str, Any], method: str) -> str:
    """The framework, with its method where that is not the work's."""
    return timing["framework"] if timing["method"] == method else f"{timing['framework']} ({timing['method']})"


def _goals(goals: Iterator[Goal]) -> str:
    rows = [(goal, asked, found, "yes" if good else "**no**") for goal, asked, found, good in goals]
    return table(("goal", "asked", "measured", "reached"), rows)


def goals(record: Record) -> Iterator[Goal]:
    """Each goal that the run's figures can be held against."""
    for work in record["works"]:
        key, (ours, *peers) = work["key"], work["timings"]
        if key in SHARE:
            yield (
                f"({key}) share of the product rate",
                f"{SHARE[key]:.0%}",
                f"{ours['share']:.0%}",
                (ours["share"] >= SHARE[key]),
            )
        asked = {environment.framework: times for environment, times in TIMES.get(key, {}).items()}
        for peer in peers:
            times = peer["seconds"] / ours["seconds"]
            if peer["framework"] == OURS:
                most = OF_FEDAVG[key]
                yield f"({key}) time over FedAvg's", f"at most {most}", f"{1 / times:.2f}", 1 / times <= most
            elif peer["framework"] in asked:
                least = asked[peer["framework"]]
                yield f"({key}) times {peer['framework']}", f"{least:g}", f"{times:.2f}", times >= least


def _compiling(found: dict[str, Any]) -> str:
    rows = [
        (method["method"], f"{method['compile_seconds']:.1f}", str(method["compiled_later"]))
        for method in found["methods"]
    ]
    return table(("method", "seconds to compile", "compiled later"), rows)


def on_gpu(record: Record) -> str:
    """The table of `benchmarks/gpu.py`."""
    rows = []
    for work in record["works"]:
        floor = work.get("share_of_memory_floor")
        rows.append(
            (
                f"({work['work']})",
                f"{work['clients']:,}",
                work.get("compute", "float32"),
                f"{work['round_seconds']:.4f}",
                f"{work['client_updates_per_second']:,.0f}",
                f"{work['tflops']:.1f}",
                "-" if floor is None else f"{floor:.0%}",
                f"{work['times_torch']:,.0f}" if "times_torch" in work else "-",
            )
        )
    titles = ("work", "clients", "products in", "s/round", "client updates/s", "TFLOP/s", "of the memory floor")
    torch = record["machine"].get("torch")
    machine = record["machine"] | {"torch": f", PyTorch {torch}" if torch else ""}
    found = [ON_GPU.format(**record, **machine), table((*titles, "times PyTorch"), rows), ABOUT_GPU]
    return "\n\n".join([*found, _folded("Goals on a GPU", _goals(gpu_goals(record)))])


def gpu_goals(record: Record) -> Iterator[Goal]:
    """The goals of the works that were taken with 32-bit numbers."""
    for work in record["works"]:
        asked = ON_DEVICE.get((work["work"], work["clients"]), {})
        for figure, least in asked.items() if work.get("compute", "float32") == "float32" else ():
            told = f"({work['work']}) {work['clients']:,} clients: {FIGURES[figure]}"
            yield told, f"{least:,}", f"{work[figure]:,.0f}", work[figure] >= least


def _folded(title: str, text: str) -> str:
    """A part that a page shows when its title is clicked."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ("---",) * len(titles), *rows))


def facts(record: Record) -> dict[str, Any]:
    """What the page tells of the run."""
    rates = [work["product_gflops"] for work in record["works"]]
    return {
        **record["machine"],
        "date": record["date"],
        "busy": BUSY if record["machine"]["load_before"] > 0.5 else "",
        "versions": ", ".join(
            f"{framework} ({', '.join(f'{name} {version}' for name, version in found.items())})"
            for framework, found in record["versions"].items()
        ),
        "low": min(rates),
        "high": max(rates),
        "rounds": record["works"][0]["rounds"],
        "exact": TOLERANCE,
        "agree": AGREE,
    }


BUSY = """
**The machine was busy with other work during this run: rely neither on its seconds nor on its ratios.**
"""
STARTUP = """
`import polyfed` takes {import_seconds:.2f} s (goal: below 1.5 s). A process that makes a problem of 100 clients,
compiles FedAvg on the MLP, runs a round and measures it takes {first_process_seconds:.1f} s. A second one finds the
compiled programs in the cache on disk and takes {second_process_seconds:.1f} s (goal: 3 s).
""".strip()
ON_GPU = """
## On a GPU

{device}, JAX {jax}{torch}, {date}. A copy runs at {copy_gb_per_second:,.0f} GB/s, a matrix product of 32-bit numbers
at the default precision at {product_tflops:,.0f} TFLOP/s.
""".strip()
ABOUT_GPU = """
- **Times PyTorch**: a PyTorch loop runs one client after another and reaches the same loss. Its time for 1,000 clients
  is ten times that for 100.
- **The memory floor** is the time in which a copy would move the weights. In every step of every client they are read
  forward, read backward, and read and written by the update; with [products in bfloat16](precision.md) the first two
  are of 16 bits. [Deferred weights](architecture.md#deferred-weights) do not move in every step, so a round may be
  shorter than the floor.
""".strip()
