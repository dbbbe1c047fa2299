"""Sends a few numbers to every node, waits for all answers in Flower's own way, and writes down how long it took."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    content = RecordDict({"broadcast": ArrayRecord({"w": Array(np.zeros(5))})})
    wanted, seconds = int(str(context.run_config["nodes"])), []
    while len(nodes := list(grid.get_node_ids())) < wanted:
        time.sleep(0.1)
    for _ in range(int(str(context.run_config["rounds"]))):
        begun = time.perf_counter()
        list(grid.send_and_receive([Message(content, node, "train") for node in nodes]))
        seconds.append(time.perf_counter() - begun)
    Path(os.environ["POLYFED_SERVER_FOLDER"], "bare.json").write_text(json.dumps(seconds))
