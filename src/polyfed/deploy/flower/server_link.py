"""The server's side of Flower: a SuperLink with TLS and node authentication, registered sites, and runs on it."""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomlkit

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.flower.processes import LOOPBACK, Child, await_port, call, environment
from polyfed.deploy.server.serve import CURRENT, FOLDER
from polyfed.deploy.settings import Federated, read_toml, server_settings

NAME = "polyfed"


@dataclass(frozen=True)
class Project:
    """A Flower app: a package of ours with the modules `server` and `client`, and the run's config."""

    name: str
    parent: str
    package: str
    config: dict[str, Any]

    def write(self, folder: Path) -> None:
        """The app as a folder that Flower's commands take."""
        (folder / self.package).mkdir(parents=True, exist_ok=True)
        for file in files(self.parent).joinpath(self.package).iterdir():
            if file.name.endswith(".py"):
                (folder / self.package / file.name).write_text(file.read_text())
        components = {side: f"{self.package}.{side.removesuffix('app')}:app" for side in ("serverapp", "clientapp")}
        about = {"version": "1.0.0", "description": "A run of polyfed", "license": "Apache-2.0", "dependencies": []}
        app = {"publisher": "polyfed", "components": components, "config": self.config}
        text = tomlkit.dumps({"project": {"name": self.name, **about}, "tool": {"flwr": {"app": app}}})
        (folder / "pyproject.toml").write_text(text)


class Link:
    """A server's folder: server.toml, certificates/, keys/NAME.pub of each site, and what it writes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.path = self.folder / "server.toml"
        self.sections = read_toml(self.path)
        self.federated: Federated = server_settings(self.sections, str(self.path))[0]
        self.home = self.folder / "flower"
        self.env = environment(self.home, **{FOLDER: str(self.folder)})
        self.certificates = self.folder / "certificates"
        for name in ("ca.pem", "server.pem", "server.key"):
            if not (self.certificates / name).is_file():
                raise PolyfedError(f"{self.certificates / name} does not exist; `polyfed deploy init` makes it")

    @property
    def address(self) -> str:
        """Where this machine reaches the server."""
        host = LOOPBACK if self.federated.host in ("0.0.0.0", "::") else self.federated.host
        return f"{host}:{self.federated.port}"

    def start(self) -> Child:
        """Start the SuperLink, and register the keys of sites that it does not know."""
        certificates, port = self.certificates, str(self.federated.port)
        command = ["python", "-m", "polyfed.deploy.flower.superlink", "--host", self.federated.host, "--port", port]
        command += ["--enable-supernode-auth"]
        command += [
            "--ssl-certfile",
            str(certificates / "server.pem"),
            "--ssl-keyfile",
            str(certificates / "server.key"),
        ]
        command += ["--ssl-ca-certfile", str(certificates / "ca.pem"), "--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "flower.db")]
        child = Child(command, self.env, self.folder / "logs" / "superlink.log")
        try:
            host, _, _ = self.address.rpartition(":")
            await_port(child, host, self.federated.port)
            self.connect()
            self._register()
        except BaseException:
            child.stop()
            raise
        return child

    def connect(self) -> None:
        """Write the connection that Flower's commands use."""
        self.home.mkdir(parents=True, exist_ok=True)
        authority = json.dumps(str(self.certificates / "ca.pem"))
        lines = ["[superlink]", f'default = "{NAME}"', f"[superlink.{NAME}]", f'address = "{self.address}"']
        (self.home / "config.toml").write_text("\n".join([*lines, f"root-certificates = {authority}", ""]))

    def nodes(self) -> list[dict[str, Any]]:
        """The registered nodes, as Flower lists them."""
        return json.loads(call(["flwr", "supernode", "list", NAME, "--format", "json"], self.env))["nodes"]

    def _register(self) -> None:
        known = self.folder / "registered.json"
        done: dict[str, str] = json.loads(known.read_text()) if known.exists() else {}
        new = {}
        for site in self.federated.sites:
            path = self.folder / "keys" / f"{site}.pub"
            if not path.is_file():
                raise PolyfedError(f"{path} does not exist: it is the public key of site '{site}'")
            if done.get(site) != path.read_text().strip():
                new[site] = path

        def register(site: str) -> None:
            call(["flwr", "supernode", "register", str(new[site]), NAME, "--name", site, "--format", "json"], self.env)
            done[site] = new[site].read_text().strip()
            write_text(known, json.dumps(done, indent=1) + "\n")

        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(register, new))

    def submit(self) -> int:
        """Start the run of server.toml, or go on with it; Flower's number of it."""
        settings = json.dumps(read_toml(self.path))
        return self.submit_app(Project("polyfed-run", "polyfed.deploy.app", "polyfed_app", {"settings": settings}))

    def submit_app(self, project: Project) -> int:
        """Hand an app to the SuperLink."""
        with tempfile.TemporaryDirectory() as place:
            project.write(Path(place))
            said = call(["flwr", "run", place, NAME, "--format", "json"], self.env)
        return int(json.loads(said)["run-id"])

    def unfinished(self) -> bool:
        """Whether a run was under way when the server was stopped."""
        return (self.folder / CURRENT).exists()

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / self.federated.run

    def progress(self) -> list[dict[str, Any]]:
        """The rounds so far."""
        path = self.run_folder / "progress.jsonl"
        with suppress(FileNotFoundError, json.JSONDecodeError):
            return [json.loads(line) for line in path.read_text().splitlines()]
        return []

    def status(self, run: int) -> str:
        """Flower's word for how a run stands, such as running or finished:completed."""
        listed = json.loads(call(["flwr", "list", NAME, "--run-id", str(run), "--format", "json"], self.env))
        return str(listed["runs"][0]["status"])
