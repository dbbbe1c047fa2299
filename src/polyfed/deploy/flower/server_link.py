"""The server's side of Flower: a SuperLink with TLS and node authentication, registered sites, and runs on it."""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

import tomlkit

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.flower.processes import LOOPBACK, ChildProcess, environment, run_command, wait_for_port
from polyfed.deploy.server.ledger import RoundLine
from polyfed.deploy.server.serve import CURRENT, FOLDER
from polyfed.deploy.settings import FederationSettings, read_toml, server_settings

CONNECTION = "polyfed"
"""The name of the connection that Flower's commands use."""


@dataclass(frozen=True)
class FlowerApp:
    """A Flower app: a package of polyfed with the modules `server` and `client`, and the run's config."""

    name: str
    parent: str
    package: str
    config: dict[str, str | int]

    def write(self, folder: Path) -> None:
        """Write the app as a folder that Flower's commands take."""
        (folder / self.package).mkdir(parents=True, exist_ok=True)
        for file in files(self.parent).joinpath(self.package).iterdir():
            if file.name.endswith(".py"):
                (folder / self.package / file.name).write_text(file.read_text())
        components = {side: f"{self.package}.{side.removesuffix('app')}:app" for side in ("serverapp", "clientapp")}
        about = {"version": "1.0.0", "description": "A run of polyfed", "license": "Apache-2.0", "dependencies": []}
        app = {"publisher": "polyfed", "components": components, "config": self.config}
        text = tomlkit.dumps({"project": {"name": self.name, **about}, "tool": {"flwr": {"app": app}}})
        (folder / "pyproject.toml").write_text(text)


class ListedNode(TypedDict):
    """What we read of a node in Flower's list."""

    status: str


class SuperLinkServer:
    """A server and its folder, with server.toml, certificates/ and keys/NAME.pub of each site; it writes there, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.path = self.folder / "server.toml"
        self.sections = read_toml(self.path)
        self.federation: FederationSettings = server_settings(self.sections, str(self.path))[0]
        self.home = self.folder / "flower"
        self.env = environment(self.home, **{FOLDER: str(self.folder)})
        self.certificates = self.folder / "certificates"
        for name in ("ca.pem", "server.pem", "server.key"):
            if not (self.certificates / name).is_file():
                raise PolyfedError(f"{self.certificates / name} does not exist; `polyfed deploy init` makes it")

    @property
    def address(self) -> str:
        """Where this machine reaches the server."""
        host = LOOPBACK if self.federation.host in ("0.0.0.0", "::") else self.federation.host
        return f"{host}:{self.federation.port}"

    def start(self) -> ChildProcess:
        """Start the SuperLink, and register the keys of sites that it does not know."""
        certificates, port = self.certificates, str(self.federation.port)
        command = ["python", "-m", "polyfed.deploy.flower.superlink", "--host", self.federation.host, "--port", port]
        command += ["--enable-supernode-auth"]
        command += [
            "--ssl-certfile",
            str(certificates / "server.pem"),
            "--ssl-keyfile",
            str(certificates / "server.key"),
        ]
        command += ["--ssl-ca-certfile", str(certificates / "ca.pem"), "--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "flower.db")]
        child = ChildProcess(command, self.env, self.folder / "logs" / "superlink.log")
        try:
            host, _, _ = self.address.rpartition(":")
            wait_for_port(child, host, self.federation.port)
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
        lines = ["[superlink]", f'default = "{CONNECTION}"', f"[superlink.{CONNECTION}]", f'address = "{self.address}"']
        (self.home / "config.toml").write_text("\n".join([*lines, f"root-certificates = {authority}", ""]))

    def nodes(self) -> list[ListedNode]:
        """The registered nodes, as Flower lists them."""
        return json.loads(run_command(["flwr", "supernode", "list", CONNECTION, "--format", "json"], self.env))["nodes"]

    def _register(self) -> None:
        """Register the public keys that the SuperLink does not know."""
        file = self.folder / "registered.json"
        registered: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        new = {}
        for site in self.federation.sites:
            path = self.folder / "keys" / f"{site}.pub"
            if not path.is_file():
                raise PolyfedError(f"{path} does not exist: it is the public key of site '{site}'")
            if registered.get(site) != path.read_text().strip():
                new[site] = path

        def register(site: str) -> None:
            run_command(
                ["flwr", "supernode", "register", str(new[site]), CONNECTION, "--name", site, "--format", "json"],
                self.env,
            )
            registered[site] = new[site].read_text().strip()
            write_text(file, json.dumps(registered, indent=1) + "\n")

        with ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(register, new))

    def submit(self) -> int:
        """Start the run of server.toml, or go on with it; returns Flower's number of it."""
        settings = json.dumps(read_toml(self.path))
        return self.submit_app(FlowerApp("polyfed-run", "polyfed.deploy.app", "polyfed_app", {"settings": settings}))

    def submit_app(self, app: FlowerApp) -> int:
        """Hand an app to the SuperLink."""
        with tempfile.TemporaryDirectory() as place:
            app.write(Path(place))
            output = run_command(["flwr", "run", place, CONNECTION, "--format", "json"], self.env)
        return int(json.loads(output)["run-id"])

    def unfinished(self) -> bool:
        """Whether a run was under way when the server was stopped."""
        return (self.folder / CURRENT).exists()

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / self.federation.run

    def progress(self) -> list[RoundLine]:
        """The rounds so far."""
        path = self.run_folder / "progress.jsonl"
        with suppress(FileNotFoundError, json.JSONDecodeError):
            return [json.loads(line) for line in path.read_text().splitlines()]
        return []

    def status(self, run: int) -> str:
        """Flower's word for how a run stands, such as running or finished:completed."""
        listed = json.loads(
            run_command(["flwr", "list", CONNECTION, "--run-id", str(run), "--format", "json"], self.env)
        )
        return str(listed["runs"][0]["status"])
