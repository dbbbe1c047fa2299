"""Train a contender's candidates on every split, and keep what the best one says of validation and test rows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.engine.loop import PlannedRun
from polyfed.engine.measure import FineTune
from polyfed.engine.privacy.mechanism import Privacy
from polyfed.engine.simulate import simulate_all
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import Metric
from polyfed.problem.problem import Problem
from polyfed.studies.advice.contenders import Candidate, Contender
from polyfed.studies.scoring import client_scores


@dataclass(frozen=True)
class Trial:
    """The best candidate of a contender on every split, chosen by the mean validation loss over all rows."""

    contender: str
    model: str
    chosen: list[int]
    """by split: the candidate"""
    loss: list[float]
    """by split: its validation loss"""
    by_candidate: list[float]
    """the mean over splits of every candidate's validation loss; infinite where one diverged"""
    scores: dict[str, np.ndarray]
    """"personal validation", "global test" and so on: (splits, rows of all clients, ...)"""
    seconds: float
    """of one run"""
    bits_up: int
    bits_down: int
    """of one run, all sites together"""
    rounds: int
    apart: list[list[int]] = field(default_factory=list)
    """by split: the sites that took no part and deploy their own models; empty where all did in all splits"""

    def apart_in(self, split: int) -> list[int]:
        return self.apart[split] if self.apart else []

    @property
    def best(self) -> int:
        """The candidate with the lowest validation loss over all splits."""
        return int(np.argmin(self.by_candidate))

    def of(self, model: str, part: str) -> np.ndarray:
        """The scores of the "personal" model, which clients deploy, or of the "global" one, if there is one."""
        return self.scores.get(f"{model} {part}", self.scores[f"personal {part}"])

    @property
    def has_global(self) -> bool:
        return "global test" in self.scores

    @property
    def deploys_global(self) -> bool:
        """Whether every client deploys the global model."""
        return self.has_global and np.array_equal(self.scores["personal test"], self.scores["global test"])

    def write(self, path: Path) -> None:
        """A safetensors file, and beside it a JSON file that is there once all is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: np.ascontiguousarray(values) for name, values in self.scores.items()}, path)
        about = {name: value for name, value in vars(self).items() if name != "scores"}
        write_text(path.with_suffix(".json"), json.dumps(about) + "\n")


def read_trial(path: Path) -> Trial | None:
    """What `write` wrote; None where there is nothing."""
    if not path.with_suffix(".json").exists():
        return None
    try:
        return Trial(scores=load_file(path), **json.loads(path.with_suffix(".json").read_text()))
    except (SafetensorError, OSError, TypeError, ValueError):
        raise PolyfedError(f"{path}: is damaged; delete it, and --resume runs this part again") from None


def run_trial(
    contender: Contender,
    model: str,
    problems: Sequence[Problem],
    proper: Metric,
    rounds: int,
    progress: Callable[[float], None],
    look: Callable[[], None] = lambda: None,
    privacy: Privacy | None = None,
) -> Trial | None:
    """All candidates on all splits as one sweep, where their shapes allow; None if Ctrl-C ended it.

    Nothing is measured but the scores that are kept.

    `proper`: the loss of a row that chooses. `look`: the clock's, which may end it.
    """
    places = [(split, numbers) for split in range(len(problems)) for numbers in _same_training(contender.candidates)]
    planned = [
        PlannedRun(problems[split], contender.candidates[numbers[0]].algorithm, seed=split) for split, numbers in places
    ]
    losses = np.full((len(problems), len(contender.candidates)), np.inf)
    kept: dict[int, dict[str, np.ndarray]] = {}
    spent, up, down, done = 0.0, 0, 0, 0

    def finished(place: int, result: Any) -> None:
        nonlocal spent, up, down, done
        split, numbers = places[place]
        simulation: Simulation = result.simulation
        done, spent = done + 1, spent + simulation.seconds
        up, down = simulation.bits_up, simulation.bits_down
        progress(done / len(places))
        if result.diverged:
            return
        plain = _scores(simulation, "validation", look)
        for number in numbers:
            tune = contender.candidates[number].finetune
            scores = plain | _finetuned(simulation, "validation", tune, look)
            loss = _mean_loss(proper, scores["personal"], problems[split].federation.validation.y)
            if not np.isfinite(loss):
                continue
            losses[split, number] = loss
            if loss <= np.min(losses[split]):
                tested = _scores(simulation, "test", look) | _finetuned(simulation, "test", tune, look)
                kept[split] = {f"{name} validation": values for name, values in scores.items()}
                kept[split] |= {f"{name} test": values for name, values in tested.items()}

    with warnings.catch_warnings():  # candidates are tried: some are too large for a theorem, and some diverge
        warnings.simplefilter("ignore")
        results = simulate_all(
            planned,
            rounds=rounds,
            eval_every=rounds,
            privacy=privacy,
            finished=finished,
            progress=lambda *_: look(),
            measure=False,
        )
    if any(result.interrupted for result in results):
        return None
    each = spent / len(places)
    if len(kept) < len(problems):
        return Trial(contender.name, model, [], [], [float("inf")] * losses.shape[1], {}, each, up, down, rounds)
    names = list(kept[0])
    return Trial(
        contender.name,
        model,
        np.argmin(losses, axis=1).tolist(),
        np.min(losses, axis=1).tolist(),
        np.mean(losses, axis=0).tolist(),
        {name: np.stack([kept[split][name] for split in range(len(problems))]) for name in names},
        each,
        up,
        down,
        rounds,
    )


def _same_training(candidates: Sequence[Candidate]) -> list[list[int]]:
    """Candidates by how they train: those that only differ in the fine-tuning after it are trained once."""
    found: list[list[int]] = []
    for number, candidate in enumerate(candidates):
        for numbers in found:
            if candidates[numbers[0]].algorithm == candidate.algorithm:
                numbers.append(number)
                break
        else:
            found.append([number])
    return found


def _scores(
    simulation: Simulation, part: str, look: Callable[[], None], tune: FineTune | None = None
) -> dict[str, np.ndarray]:
    """What the deployed and the global model, or the fine-tuned one, say of all clients' rows, one after another.

    Each kind of model may be a program to compile, so the clock is asked before.
    """
    look()
    found: dict[str, dict[int, np.ndarray]] = {}
    for place, client in client_scores(simulation, part, tune):
        for name, values in client.scores.items():
            found.setdefault(name, {})[place] = values
    return {name: np.concatenate([rows[place] for place in sorted(rows)]) for name, rows in found.items()}


def _finetuned(
    simulation: Simulation, part: str, tune: FineTune | None, look: Callable[[], None]
) -> dict[str, np.ndarray]:
    """The fine-tuned model's scores as those of the personal one; nothing for a candidate that is not fine-tuned."""
    return {} if tune is None else {"personal": _scores(simulation, part, look, tune)["finetuned"]}


def _mean_loss(proper: Metric, scores: np.ndarray, labels: np.ndarray) -> float:
    assert proper.by_row is not None
    return float(np.mean(proper.by_row(scores, labels)))
