"""What `polyfed advise` leaves behind: the advice as JSON, a row per site, and a config that trains what it advises."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyfed.core.errors import PolyfedError
from polyfed.core.files import as_toml, write_csv, write_text
from polyfed.data import Federation
from polyfed.engine.identity import plain_value
from polyfed.studies.advice.advice import L2
from polyfed.studies.advice.answer import Advice
from polyfed.studies.advice.contenders import ALONE, Candidate


def write_advice(advice: Advice, folder: Path, data: Mapping[str, Any]) -> None:
    """advice.json, sites.csv, methods.csv and config.toml; `data` is the section [data] that the rows came from."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "sites.csv", [dataclasses.asdict(site) for site in advice.sites])
    write_csv(folder / "methods.csv", advice.table)
    write_text(folder / "config.toml", as_toml(config_of(advice, data)))
    write_text(folder / "advice.json", json.dumps(advice.as_dict(), indent=1) + "\n")


def config_of(advice: Advice, data: Mapping[str, Any]) -> dict[str, Any]:
    """A config for `polyfed compare`: going alone, and what is advised, on as many splits."""
    problem: dict[str, Any] = {"model": "linear", "l2": L2}
    if advice.model != "linear":
        problem |= {"model": "mlp", "hidden": [16]}
    run: dict[str, Any] = {"rounds": advice.rounds, "splits": advice.splits, "metric": advice.metric.name}
    run["eval_every"] = advice.rounds
    tune = advice.candidate.finetune
    if tune is not None:
        run |= {"finetune_steps": tune.steps, "finetune_lr": tune.lr}
    methods = [{"label": "alone", "name": "local"}]
    if advice.method != ALONE:
        methods.append(_method(advice.label, advice.candidate))
    else:
        methods = [_method("alone", advice.candidate)]
    return {"data": dict(data), "problem": problem, "run": run, "compare": methods}


def _method(label: str, candidate: Candidate) -> dict[str, Any]:
    """A section [[compare]]: the hyper-parameters that are not the defaults."""
    algorithm = candidate.algorithm
    usual = type(algorithm)()
    section: dict[str, Any] = {"label": label, "name": algorithm.name}
    for name, value in vars(algorithm).items():
        if plain_value(value) != plain_value(vars(usual)[name]):
            section[name] = plain_value(value)
    if candidate.finetune is not None:
        section["finetune"] = True
    return section


def forget(folder: Path, federation: Federation) -> None:
    """Remove what an earlier call has left, and note whose rows the next one is about."""
    shutil.rmtree(folder / "trials", ignore_errors=True)
    for name in ("advice.json", "sites.csv", "methods.csv", "config.toml", "report.html"):
        (folder / name).unlink(missing_ok=True)
    (folder / "trials").mkdir(parents=True)
    write_text(folder / "trials" / "data.json", json.dumps({"digest": federation.digest()}) + "\n")


def refuse_other_data(folder: Path, federation: Federation) -> None:
    """Go on only with the rows that the kept parts were made of."""
    path = folder / "trials" / "data.json"
    if not path.exists():
        raise PolyfedError(f"{folder}: there is nothing here to resume")
    if json.loads(path.read_text()).get("digest") != federation.digest():
        raise PolyfedError(f"{folder}: was begun with other rows, or another seed; use --overwrite or another --out")
