"""Run experiments, or draw them again from stored rows, and write their folders: what `polyfed reproduce` calls."""

from __future__ import annotations

from pathlib import Path

from polyfed.papers.catalogue import select
from polyfed.papers.shared.experiment import Experiment, ExperimentProgress, Outcome, silent
from polyfed.papers.shared.folder import stored, write
from polyfed.papers.shared.rows import tidy
from polyfed.papers.shared.run_cache import resumable


def reproduce(
    name_or_prefix: str,
    folder: str | Path,
    quick: bool = False,
    progress: ExperimentProgress | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> list[tuple[Experiment, Path, Outcome]]:
    """Run one experiment or all of a paper; each writes into its own folder, such as FOLDER/flix/fig2.

    Finished runs are stored until the whole call ends. A call that was stopped goes on with `resume` and begins anew
    with `overwrite`. Runs of other code or of another machine are repeated.
    """
    experiments, done = select(name_or_prefix), []
    unfinished = Path(folder) / name_or_prefix.strip("/") / ("unfinished-quick" if quick else "unfinished")
    with resumable(unfinished, resume, overwrite):
        for chosen in experiments:
            measured = chosen.run(quick, progress or silent)
            measured.rows = tidy(measured.rows)
            outcome = chosen.outcome(measured)
            place = Path(folder) / chosen.name
            write(outcome, chosen, place, quick)
            done.append((chosen, place, outcome))
    return done


def redraw(name_or_prefix: str, folder: str | Path) -> list[tuple[Experiment, Path, Outcome]]:
    """Judge, draw and write one experiment or all of a paper again from the rows in their folders, without a run."""
    done = []
    for chosen in select(name_or_prefix):
        place = Path(folder) / chosen.name
        measured, quick, machine = stored(chosen, place)
        outcome = chosen.outcome(measured)
        write(outcome, chosen, place, quick, machine)
        done.append((chosen, place, outcome))
    return done
