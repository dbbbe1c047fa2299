"""What `polyfed advise` leaves behind: the advice as JSON, a row per site, and a config that trains what it advises."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyfed.core.files import as_toml, write_csv, write_text
from polyfed.data import source_options
from polyfed.engine.identity import plain_value
from polyfed.studies.advice.answer import Advice
from polyfed.studies.advice.contenders import ALONE, Candidate


def write_advice(advice: Advice, folder: Path, data: Mapping[str, Any]) -> None:
    """advice.json, sites.csv, methods.csv and config.toml; `data` is the section [data] that the rows came from.

    alone.toml trains the sites apart, each alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "sites.csv", [dataclasses.asdict(site) for site in advice.sites])
    write_csv(folder / "methods.csv", advice.table)
    config = config_of(advice, data)
    if advice.apart and "only" in source_options(str(data["source"])):
        others = [site.client for site in advice.sites if site.client not in advice.apart]
        alone = {**config, "data": config["data"] | {"only": advice.apart}, "compare": config["compare"][:1]}
        write_text(folder / "alone.toml", as_toml(alone))
        config["data"] |= {"only": others}
    write_text(folder / "config.toml", as_toml(config))
    write_text(folder / "advice.json", json.dumps(advice.as_dict(), indent=1) + "\n")


def config_of(advice: Advice, data: Mapping[str, Any]) -> dict[str, Any]:
    """A config for `polyfed compare`: going alone, and what is advised, on as many splits."""
    run: dict[str, Any] = {"rounds": advice.rounds, "splits": advice.splits, "metric": advice.metric.name}
    run["eval_every"] = advice.rounds
    tune = advice.candidate.finetune
    if tune is not None:
        run |= {"finetune_steps": tune.steps, "finetune_lr": tune.lr}
    methods = [_method("alone", advice.alone)]
    if advice.method != ALONE:
        methods.append(_method(advice.label, advice.candidate))
    return {"data": dict(data), "problem": problem_section(advice), "run": run, "compare": methods}


def problem_section(advice: Advice) -> dict[str, Any]:
    """The section [problem]."""
    model = (
        {"model": "linear"} if advice.model == "linear" else {"model": "mlp", "hidden": list(advice.settings.hidden)}
    )
    return {**model, "l2": advice.settings.l2}


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
