"""Stages around uploads: a site's side before the upload is serialised, the server's side on the sum."""

from __future__ import annotations

import jax
import numpy as np

from polyfed.deploy.protocol.rules import Conduct
from polyfed.deploy.protocol.terms import Plan
from polyfed.deploy.server.coordinator import Coordinator
from polyfed.deploy.stages import STAGES, Moment, Stage
from polyfed.engine.round.records import Contribution, Sums
from polyfed.studies.config import algorithm_from
from tests.deploy.loopback import PROBLEM, Loopback
from tests.deploy.test_equality import close, simulated

METHOD = {"name": "dcgd", "lr": 0.01, "alpha": 1.0, "compressor": {"name": "rand_k", "k": 5}}


class Shifted(Stage):
    """Every site adds its place in the cohort, plus one, and the server takes the sum of that off again."""

    name = "shifted"

    def upload(self, sent: Contribution, moment: Moment) -> Contribution:
        assert moment.site is not None
        mine = 1 + moment.sites.index(moment.site)
        return sent._replace(values=jax.tree.map(lambda leaf: np.asarray(leaf) + mine, sent.values))

    def total(self, sums: Sums, moment: Moment) -> Sums:
        whole = sum(range(1, len(moment.sites) + 1))
        return sums._replace(values=jax.tree.map(lambda leaf: leaf - whole, sums.values))


def test_a_stage_changes_what_travels_and_the_sum_in_every_round(three, loopback, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(STAGES, "shifted", Shifted)
    grid: Loopback = loopback()
    plan = Plan("study", three.clients, PROBLEM, algorithm_from(METHOD), 3, dtype="float64", stages=(Shifted(),))
    run = Coordinator(plan, grid, tmp_path / "run", Conduct(poll=0.01, deadline=0.2))
    run.run()
    close(run.server, simulated(three, METHOD, rounds=3).server)
    assert run.ledger.bits_up > 3 * 3 * 8 * 8 * 15  # numbers, not the code of five of fifteen
