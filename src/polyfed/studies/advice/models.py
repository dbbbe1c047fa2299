"""The models that an advice tells its sites to deploy: trained once more, and kept in its folder as those of a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from polyfed.core.files import owner_only
from polyfed.core.trees import Tree
from polyfed.data import Federation
from polyfed.engine.checkpoint.tensors import save_rows, save_tree
from polyfed.engine.finetuned import finetuned_blocks
from polyfed.engine.simulate import simulate_whole
from polyfed.engine.simulation import Simulation
from polyfed.problem.prediction import labels_of
from polyfed.problem.problem import Problem
from polyfed.studies.advice.answer import Advice
from polyfed.studies.advice.contenders import ALONE, Candidate
from polyfed.studies.advice.files import problem_section
from polyfed.studies.advice.settings import loss_for
from polyfed.studies.saved_models import FOLDER, GLOBAL, PERSONAL, saved_about, write_saved_about


def write_advised_models(advice: Advice, federation: Federation, folder: Path) -> None:
    """models/ in the advice's folder: every site's is the one that it is told to deploy.

    Trained as the deployment project does: on the rows of the federation's own split, and without the sites apart.
    """
    settings, told = advice.settings, {site.client: site.deploy for site in advice.sites}
    model = settings.kinds[advice.model]

    def trained(candidate: Candidate, clients: list[str]) -> Simulation:
        rows = federation.select([federation.index(client) for client in clients])
        problem = Problem(rows, model, loss_for(federation), l2=settings.l2)
        with warnings.catch_warnings():  # said of its stepsize when it was chosen
            warnings.simplefilter("ignore")
            rounds = advice.rounds
            return simulate_whole(problem, candidate.algorithm, rounds=rounds, eval_every=rounds).simulation

    alone = trained(advice.alone, list(federation.clients))
    own = dict(zip(federation.clients, _models(alone, advice.alone), strict=True))
    together = [client for client in federation.clients if client not in advice.apart]
    joint, shared, personal = alone, None, own
    if advice.method != ALONE:
        joint = trained(advice.candidate, together)
        shared = joint.global_params
        personal = dict(zip(together, _models(joint, advice.candidate), strict=True))
    deployed = {"alone": own, "personal": personal}
    if shared is not None:
        deployed["global"] = dict.fromkeys(together, jax.tree.map(lambda leaf: np.asarray(leaf)[None], shared))
    place = folder / FOLDER
    owner_only(place)
    save_rows(place / PERSONAL, (deployed[told[client]][client] for client in federation.clients), len(federation))
    if shared is not None:
        save_tree(place / GLOBAL, shared)
    about = saved_about(
        alone.problem,
        alone.dtype,
        method={"name": joint.method.name, "label": advice.label, "round": joint.round},
        section=problem_section(advice),
        labels=labels_of(alone.problem),
        preparation=federation.preparation,
        columns={key: federation.source.get(key) for key in ("client", "target")},
        clients=list(federation.clients),
        deploys="personal",
    )
    write_saved_about(place, about, [GLOBAL, PERSONAL])


def _models(simulation: Simulation, candidate: Candidate) -> Iterator[Tree]:
    """What each client deploys, with a leading axis of one."""
    if candidate.finetune is not None:
        yield from finetuned_blocks(simulation, candidate.finetune)
        return
    for block in simulation.personal_blocks():
        for place in range(len(jax.tree.leaves(block)[0])):
            yield jax.tree.map(lambda leaf, place=place: np.asarray(leaf)[place : place + 1], block)
