"""The trained server as newcomers read it, beside what they must know of its problem and its tables."""

from __future__ import annotations

import json
from pathlib import Path

from polyfed.core.files import write_text
from polyfed.core.trees import Tree
from polyfed.deploy.server.agreement import Agreement
from polyfed.studies.newcomers import trained

PROBLEM_FILE = "problem.json"
"""The section [problem] beside the published server."""
PREPARATION_FILE = "preparation.json"
"""What becomes of the columns of tables, beside the published server."""


def publish(folder: Path, agreement: Agreement, server: Tree, rounds: int) -> None:
    """Write the server after so many rounds to `server/`, as a simulated run has it."""
    run = agreement.run
    known = trained.Trained(
        agreement.method,
        server,
        agreement.problem.model,
        agreement.problem.loss.name,
        agreement.problem.l2,
        agreement.kind,
        rounds,
        run.seed,
        run.dtype,
        run.finish.finetune,
        run.problem.get("class_weight"),
    )
    trained.save(folder, known)
    write_text(folder / trained.FOLDER / PROBLEM_FILE, json.dumps(run.problem, indent=1) + "\n")
    if agreement.preparation is not None:
        write_text(folder / trained.FOLDER / PREPARATION_FILE, json.dumps(agreement.preparation, indent=1) + "\n")
