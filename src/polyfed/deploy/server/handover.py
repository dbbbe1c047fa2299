"""The end of a run: every site settles its last round, and gets the trained server."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import jax
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from safetensors.numpy import save_file

from polyfed.core.files import read_object, write_text
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.bounds import read_metrics
from polyfed.deploy.protocol.messages import OpenMessages
from polyfed.deploy.protocol.plain_values import json_object, plain_values, refusal_in
from polyfed.deploy.site.state_file import NEVER
from polyfed.report.deployed_page import Outcome, write_deployed_page
from polyfed.report.deployed_runs import AT_SERVER as OUTCOMES

if TYPE_CHECKING:
    from polyfed.deploy.server.coordinator import Coordinator

FINISHED = "finished.json"
"""The sites that have the result, and the metrics that they let leave."""


def hand_over(run: Coordinator) -> None:
    """Give every site the result, and take what it lets leave. An absent site gets it in a later `run`."""
    file = run.folder / FINISHED
    finished = read_object(file)
    told = run.folder / OUTCOMES
    outcomes = read_object(told)
    server = wire.as_record(wire.named(jax.tree.map(np.asarray, run.server)))
    models = run.folder / "models"

    def message_for(site: str) -> RecordDict:
        counted = run.ledger.counted.get(site, NEVER)
        message = RecordDict({"server": server})
        if run.method.absorb is not None and counted != NEVER:
            message["absorb"] = wire.as_record(wire.named(run.backlog[counted]))
        message["about"] = ConfigRecord({"terms": run.agreement.terms[site].to_json(), "counted": counted})
        return message

    def take(site: str, reply: RecordDict) -> str | None:
        values = plain_values(reply)
        why = refusal_in(values)
        if why is not None:
            return why
        metrics = read_metrics(json_object(values, "metrics")) if "metrics" in values else None
        if "outcome" in values:
            outcome = Outcome.from_json(json_object(values, "outcome"))
            if (outcome.site, outcome.run) != (site, run.deployed.name):
                return "an outcome of another site or run"
            outcomes[site] = asdict(outcome)
        if "model" in reply.array_records:
            model = wire.as_arrays(reply.array_records["model"])
            wire.as_tree(model, run.params, "model")
            models.mkdir(exist_ok=True)
            save_file(model, models / f"{site}.safetensors")
        finished[site] = metrics
        return None

    waiting = [site for site in run.deployed.sites if site not in finished]
    sent: dict[str, OpenMessages] = {}
    for _ in range(run.rules.patience):
        run.sites.ask(waiting, message_for, "evaluate", deadline=run.rules.deadline, take=take, sent=sent)
        at_work = run.sites.connected()
        waiting = [site for site in waiting if site in at_work and site in sent and sent[site].ids]
        if not waiting:  # a site that is off, or refused, is not waited for
            break
    run.sites.forget(sent)
    write_text(file, json.dumps(finished, indent=1) + "\n")
    if outcomes:
        write_text(told, json.dumps(outcomes, indent=1) + "\n")
        listed = [Outcome.from_json(outcomes[site]) for site in run.deployed.sites if site in outcomes]
        write_deployed_page(listed, run.folder / "report.html", title=f"the run {run.deployed.name}")
