"""Rounds of Flower's simulation with Ray, in a Python that has both: an answer per line of input.

It imports nothing of polyfed. A round is one of Flower's FedAvg strategy; each core runs one client at a time.
"""

import json
import logging
import os
import sys
import time
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import torch
import torch_models
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

LR = 0.1
PATH, OPTIONS = sys.argv[1], json.loads(sys.argv[2])
client_app, server_app = ClientApp(), ServerApp()


# user code
@client_app.train()
def train(message, context):
    config = message.content["config"]
    x, y, model = torch_models.tensors(config["path"], config["options"])
    node = context.node_config["partition-id"]
    client = config["cohort"][node] if "cohort" in config else node
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR)
    order = torch.randperm(y.shape[1])
    for step in range(config["steps"]):
        chosen = order[torch.arange(step * config["batch"], (step + 1) * config["batch"]) % y.shape[1]]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[client, chosen]), y[client, chosen]).backward()
        optimizer.step()
    record = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": y.shape[1]})}
    return Message(RecordDict(record), reply_to=message)


@server_app.main()
def serve(grid, context):
    x, y, model = torch_models.tensors(PATH, json.dumps(OPTIONS))
    arrays = ArrayRecord(model.state_dict())
    cohorts = iter(OPTIONS.get("cohorts") or [])
    settings: dict[str, Any] = {"path": PATH, "options": json.dumps({**OPTIONS, "cohorts": None})}
    settings |= {"steps": OPTIONS["steps"], "batch": OPTIONS["batch"]}
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=nodes())

    def round(arrays):
        cohort = next(cohorts, None)
        config = ConfigRecord(settings if cohort is None else {**settings, "cohort": list(cohort)})
        return strategy.start(grid, arrays, num_rounds=1, train_config=config).arrays

    # end of user code
    print("ready", file=ANSWERS, flush=True)
    for line in sys.stdin:
        if line.strip() == "loss":
            model.load_state_dict(arrays.to_torch_state_dict())
            print(torch_models.mean_loss(model, x, y), file=ANSWERS, flush=True)
            continue
        begun, used = time.perf_counter(), time.process_time()
        arrays = round(arrays)
        print(time.perf_counter() - begun, time.process_time() - used, file=ANSWERS, flush=True)


def nodes() -> int:
    return len(OPTIONS["cohorts"][0]) if OPTIONS.get("cohorts") else OPTIONS["clients"]


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")  # Ray and Flower print, too: that goes to standard error
    os.dup2(2, 1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    resources = {
        "init_args": {"num_cpus": OPTIONS["threads"], "logging_level": "error", "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app, client_app, nodes(), backend_config=resources)
