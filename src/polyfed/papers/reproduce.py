"""List the experiments and run them: what `polyfed reproduce` calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError, suggestion
from polyfed.papers.shared.experiment import Experiment, Outcome, Progress, load_all, silent
from polyfed.papers.shared.finished import keeping
from polyfed.papers.shared.folder import write


def reproduce_list() -> list[dict[str, Any]]:
    """A row per experiment: name, title, paper, data; sorted by paper, then by the figure's number."""
    return [
        {"name": found.name, "title": found.title, "paper": found.paper, "data": found.data}
        for found in sorted(load_all().values(), key=lambda found: _order(found.name))
    ]


def select(name_or_prefix: str) -> list[Experiment]:
    """The experiment of this name, or those of a paper ("flix"), in the order of the figures."""
    known = load_all()
    wanted = name_or_prefix.strip("/")
    chosen = [name for name in known if name == wanted or name.startswith(f"{wanted}/")]
    if not chosen:
        names = [*known, *(name.split("/")[0] for name in known)]
        raise PolyfedError(f"unknown experiment '{name_or_prefix}'{suggestion(name_or_prefix, set(names))}")
    return [known[name] for name in sorted(chosen, key=_order)]


def reproduce(
    name_or_prefix: str,
    folder: str | Path,
    quick: bool = False,
    progress: Progress | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> list[tuple[Experiment, Path, Outcome]]:
    """Run one experiment or all of a paper; each writes into its own folder, such as FOLDER/flix/fig2.

    Runs that ended are kept until all of them have: where a call was stopped, the same one with `resume` goes on, and
    with `overwrite` begins anew. Those of other code or another machine are run again.
    """
    experiments, done = select(name_or_prefix), []
    unfinished = Path(folder) / name_or_prefix.strip("/") / ("unfinished-quick" if quick else "unfinished")
    with keeping(unfinished, resume, overwrite):
        for chosen in experiments:
            outcome = chosen.run(quick, progress or silent)
            place = Path(folder) / chosen.name
            write(outcome, chosen, place, quick)
            done.append((chosen, place, outcome))
    return done


def _order(name: str) -> tuple[Any, ...]:
    """flix/fig2 comes before flix/fig10."""
    paper, _, figure = name.partition("/")
    digits = "".join(c for c in figure if c.isdigit())
    return paper, figure.rstrip("0123456789"), int(digits or 0), figure
