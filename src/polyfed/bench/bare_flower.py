"""A federation of Flower's own programs on loopback, and an app on it: what a round costs in Flower alone."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import tomlkit

from polyfed.core.errors import PolyfedError
from polyfed.deploy.network.processes import LOOPBACK, ChildProcess, environment, free_port, run_command, wait_for_port

PATIENCE = 600.0
PACKAGE = "bare_app"


def bare_rounds(folder: Path, nodes: int, rounds: int) -> list[float]:
    """The seconds of rounds in which nobody computes anything. The programs listen on loopback, and end with it."""
    home, seconds, port = folder / "flower", folder / "bare.json", free_port()
    home.mkdir(parents=True)
    env = environment(home, POLYFED_SERVER_FOLDER=str(folder), FLWR_SUPEREXEC_TASK_POLL_INTERVAL="0.1")
    with ExitStack() as stack:
        command = ["flower-superlink", "--insecure", "--host", LOOPBACK, "--port", str(port)]
        link = stack.enter_context(ChildProcess(command, env, folder / "superlink.log"))
        wait_for_port(link, LOOPBACK, port)
        for node in range(nodes):
            command = ["flower-supernode", "--insecure", "--superlink", f"{LOOPBACK}:{port}", "--host", LOOPBACK]
            command += ["--port", str(free_port())]
            stack.enter_context(ChildProcess(command, env, folder / f"supernode-{node}.log"))
        lines = ["[superlink]", 'default = "bare"', "[superlink.bare]", f'address = "{LOOPBACK}:{port}"']
        (home / "config.toml").write_text("\n".join([*lines, "insecure = true", ""]))
        _write_app(folder / "app", {"rounds": rounds, "nodes": nodes})
        run_command(["flwr", "run", str(folder / "app"), "bare"], env)
        end = time.monotonic() + PATIENCE
        while not seconds.exists():
            if time.monotonic() > end:
                raise PolyfedError(f"Flower's rounds did not end within {PATIENCE:g} seconds")
            time.sleep(0.2)
        return json.loads(seconds.read_text())


def _write_app(folder: Path, config: dict[str, int]) -> None:
    """The app as a folder that Flower's commands take."""
    (folder / PACKAGE).mkdir(parents=True)
    for file in files("polyfed.bench").joinpath(PACKAGE).iterdir():
        if file.name.endswith(".py"):
            (folder / PACKAGE / file.name).write_text(file.read_text())
    components = {side: f"{PACKAGE}.{side.removesuffix('app')}:app" for side in ("serverapp", "clientapp")}
    about = {"version": "1.0.0", "description": "Rounds of nothing", "license": "Apache-2.0", "dependencies": []}
    app = {"publisher": "polyfed", "components": components, "config": config}
    text = tomlkit.dumps({"project": {"name": "bare", **about}, "tool": {"flwr": {"app": app}}})
    (folder / "pyproject.toml").write_text(text)
