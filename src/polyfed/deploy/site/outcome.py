"""The end of a run at a site: its models as complete files, what each is worth on its test rows, and its own page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from polyfed.algorithms.contract import Server, State, global_model
from polyfed.core.errors import PolyfedError
from polyfed.core.files import owner_only, write_text
from polyfed.core.trees import Tree
from polyfed.data import Federation
from polyfed.deploy.protocol.terms import Terms, method_from_json
from polyfed.deploy.site.local_work import ONLY, LocalWork
from polyfed.engine.checkpoint.tensors import save_tree
from polyfed.engine.simulation import Simulation
from polyfed.problem.metrics import constant_scores, default_metric
from polyfed.problem.metrics.canonical import canonical
from polyfed.problem.prediction import Label, Predictor
from polyfed.report.deployed_page import Outcome, Standing, write_deployed_page
from polyfed.studies.saved_models import saved_about, write_saved_about
from polyfed.studies.verdicts import detectable, interval_on_rows, row_evidence, row_kind, verdict

OUTCOME = "outcome.json"
PAGE = "report.html"


def site_models(work: LocalWork, server: Server, state: State, compare: bool) -> dict[str, Tree]:
    """The models of the end by name. The one trained alone is made where it is deployed, or compared with."""
    terms = work.terms
    shared = global_model(server)
    models = {"personal": work.personal(server, state)}
    if shared is not None:
        models["global"] = jax.tree.map(np.asarray, shared)
    if terms.finetune is not None:
        if shared is None:
            raise PolyfedError(f"{terms.method.name} has no global model to fine-tune")
        models["personal"] = work.finetuned(shared, terms.finetune)
    if terms.alone is not None and (compare or terms.deploy == "alone"):
        models["alone"] = trained_alone(work)
    if terms.deploy not in models:
        raise PolyfedError(f"{terms.method.name} has no {terms.deploy} model to deploy")
    return models


def trained_alone(work: LocalWork) -> Tree:
    """This site's model without the others, after as many rounds: what the simulator's `local` gives it."""
    terms = work.terms
    assert terms.alone is not None
    options: dict[str, Any] = {"seed": terms.seed, "init": terms.init, "dtype": terms.dtype, "compute": terms.compute}
    simulation = Simulation(work.problem, method_from_json(terms.alone), **options)
    simulation.prepare()
    simulation.advance(terms.rounds)
    return simulation.personal(ONLY)


def save_models(place: Path, models: dict[str, Tree], work: LocalWork, source: Federation) -> None:
    """Weights of every model, and model.json: all that it takes to score rows with the one that is deployed."""
    terms = work.terms
    owner_only(place)
    for name, params in models.items():
        save_tree(place / f"{name}.safetensors", params)
    about = saved_about(
        work.problem,
        terms.dtype,
        method={"name": terms.method.name, "label": terms.method.name, "round": terms.rounds},
        section=terms.problem,
        labels=labels_of_terms(terms),
        preparation=source.preparation,
        columns={"client": None, "target": source.source.get("target")},
        clients=[terms.site],
        deploys=terms.deploy,
    )
    write_saved_about(
        place, {**about, "site_model": f"{terms.deploy}.safetensors"}, [f"{name}.safetensors" for name in models]
    )


def labels_of_terms(terms: Terms) -> tuple[Label, ...] | None:
    """What the classes are called in the whole federation; None for real numbers."""
    kind, loss = terms.kind, terms.problem["loss"]
    if loss in ("squared", "tags"):
        return None
    if kind.label_names is not None:
        return kind.label_names
    if loss == "softmax":
        return tuple(range(kind.classes or 0))
    negative, positive = kind.signs or (-1.0, 1.0)
    return int(negative) if negative.is_integer() else negative, int(positive) if positive.is_integer() else positive


def standing(work: LocalWork, models: dict[str, Tree]) -> Outcome | None:
    """What each model is worth on this site's test rows, beside training alone; None without test rows."""
    problem, terms = work.problem, work.terms
    rows = problem.federation.test
    if not len(rows.y) or terms.problem["loss"] == "tags":
        return None
    metric = default_metric(problem)
    predictor = Predictor(problem.model, problem.loss.name, None, problem.federation.feature_shape, None, terms.dtype)
    scores: dict[str, np.ndarray] = {}
    labels = np.zeros(0)
    for name, params in models.items():
        scores[name], labels = canonical(problem, predictor.outputs(params, rows.x), problem.targets(ONLY, "test"))
    scores["constant"] = np.broadcast_to(constant_scores(problem, ONLY), scores["personal"].shape)
    standings = []
    for name, own in scores.items():
        interval = None
        if name != "alone" and "alone" in scores:
            evidence = row_evidence(
                metric,
                own,
                scores["alone"],
                labels,
                higher_is_better=metric.higher_is_better,
                kind=row_kind(metric.name),
            )
            interval = interval_on_rows(evidence)
        known = interval is not None and interval.known
        smallest = detectable(interval) if known and interval is not None else None
        interval = interval and interval.within(metric.largest)
        standings.append(
            Standing(
                name,
                _number(metric(own, labels)),
                None if interval is None else _number(interval.estimate),
                _number(interval.low) if known and interval is not None else None,
                _number(interval.high) if known and interval is not None else None,
                None if interval is None else verdict(interval),
                smallest,
            )
        )
    return Outcome(
        terms.site,
        terms.run,
        terms.method.name,
        terms.deploy,
        terms.rounds,
        len(problem.federation.train.y),
        len(rows.y),
        metric.label,
        tuple(standings),
    )


def write_outcome(place: Path, outcome: Outcome) -> None:
    """outcome.json, and the site's own page."""
    write_text(place / OUTCOME, json.dumps(dataclasses.asdict(outcome), indent=1) + "\n")
    write_deployed_page([outcome], place / PAGE, title=f"{outcome.site}, {outcome.run}")


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
