"""`polyfed deploy init`: a small project with a folder for the server and one for each site."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from polyfed.core.errors import PolyfedError
from polyfed.core.files import write_text
from polyfed.deploy.keys import (
    issue_site_certificate,
    make_certificates,
    make_site_key,
    read_public_key,
    renew_certificates,
)
from polyfed.deploy.protocol.names import checked_site, checked_sites
from polyfed.deploy.settings import PORT, ROSTER, address_of

SERVER_TOML = """[federation]
run = "study"             # sites keep the run's state under this name
sites = {sites}
host = "{listen}"         # where the server listens
port = {port}
deadline = 600.0          # seconds that a round waits for its sites
minimum = {minimum}               # the fewest uploads that a round needs
secure = false            # true: masks on the uploads, so that the server learns their sum alone

[problem]
model = "linear"
loss = "logistic"
l2 = 0.01

[algorithm]               # any of `polyfed algorithms`
name = "scafflix"
alpha = 0.5               # the weight of the global model; or the name of a column of the sites' configs
even = true               # with `batch`: batches of nearly equal size, as sites refuse steps on few rows

[run]
rounds = 10
seed = 0
dtype = "float64"

# [privacy]               # needs polyfed[privacy]: uploads are clipped, and their sum gets noise
# clip = 1.0
# noise = 1.0             # in multiples of clip
# delta = 1e-5
"""
SITE_TOML = """[site]
name = "{name}"
server = "{address}"
certificate = "ca.pem"    # proves to this site that the server is the server
key = "{name}.key"        # proves to the server that this site is '{name}'; keep it secret
own_certificate = "{name}.pem"  # issued by the server's operator for this key

[data]                    # the rows never leave this machine
source = "csv"
path = "data.csv"
target = "y"

[columns]                 # this site's own values of hyper-parameters, such as alpha = 0.3

[allow]                   # what may leave beside what the algorithm uploads
smoothness = true         # L and mu of this site's objective, where the theory's stepsize is asked for
class_rows = true         # its training rows of each class, where class weights are to be balanced
sums = true               # counts, sums and categories of its columns, where tables are to be prepared
metrics = false           # how well the models do on this site's rows
model = false             # this site's personal model
plain = true              # uploads that the server can read one by one; false: only masked ones (federation.secure)

[policy]                  # terms beyond these limits get no answer
algorithms = []           # those that may run here; none named: any
smallest_batch = 8        # the fewest rows in a step, and left out by a round's steps: one row alone is told
fewest_steps = 1          # the fewest steps in a round
fewest_sites = {fewest}          # the fewest sites in a sum
most_rounds = 1000        # the most rounds of a run
min_count = 5             # the fewest rows that a category must have to be named to others
noise = 0.0               # the least noise of a private run, in multiples of its clip; above 0: private runs only
pinned_sites = {pinned}      # masked sums only with sites whose keys are in roster/: compare them with their owners
changes = "ask"           # terms unlike the first run's wait for `polyfed deploy accept`; "allow": they do not
"""
README = """# A federation of {count} sites

`server/` goes to the server's machine, each other folder to its site. `*.key` files are secrets: give each to its
owner only.

| where | command |
| --- | --- |
| on the server | `polyfed deploy server server` |
| at each site | `polyfed deploy site NAME` |
| on the server, once | `polyfed deploy run server` |
| to try all of it on one machine | `polyfed deploy up .` |

Certificates and keys were made by `polyfed deploy init`, for these names of the server: {hosts}. A site that prefers to
make its own key runs `ssh-keygen -t ecdsa -b 384 -N "" -f NAME.key` and sends `NAME.key.pub` to the server's operator,
who runs `polyfed deploy admit server NAME NAME.key.pub` and sends the `NAME.pem` that this writes back.

`server/certificates/ca.key` lets whoever has it into the federation. It is needed for `admit` alone: keep it offline.
"""


def make_project(folder: Path, sites: Sequence[str], host: str, port: int = PORT, example: bool = False) -> None:
    """Write the project; `example` gives every site some made-up rows."""
    if folder.exists() and any(folder.iterdir()):
        raise PolyfedError(f"{folder}: not empty")
    checked_sites(sites, "sites")
    server, hosts = folder / "server", list(dict.fromkeys([host, "localhost", "127.0.0.1"]))
    make_certificates(server / "certificates", hosts)
    names, listen = "[" + ", ".join(f'"{site}"' for site in sites) + "]", _listening(host)
    minimum, address = max(1, len(sites) - 1), address_of(host, port)
    (server / "server.toml").write_text(SERVER_TOML.format(sites=names, listen=listen, port=port, minimum=minimum))
    (server / "keys").mkdir()
    for place, site in enumerate(sites):
        _make_site(folder, site, _site_toml(site, address, min(2, minimum), pinned=len(sites) > 1))
        if example:
            _write_example(folder / site / "data.csv", place)
    _share_keys(folder, sites)
    server.chmod(0o700)  # states and models come to lie here beside the keys
    text = README.format(count=len(sites), hosts=", ".join(hosts))
    (folder / "README.md").write_text(text)


def add_site(folder: Path, site: str) -> Path:
    """A further site of a project: its folder with key, certificate and config, and its name on the roster."""
    server = folder / "server"
    path = server / "server.toml"
    try:
        document = tomlkit.parse(path.read_text())
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None
    federation: Any = document.get("federation")
    if not isinstance(federation, dict) or not isinstance(federation.get("sites"), list) or not federation["sites"]:
        raise PolyfedError(f"{path}: federation.sites must be a list of names")
    roster = [str(name) for name in federation["sites"]]
    checked_site(site, "the new site")
    if site.casefold() in map(str.casefold, roster) or (folder / site).exists():
        raise PolyfedError(f"{folder}: cannot add the site {site!r}: it is there already")
    text = _like_another(folder, roster, site, int(federation.get("port", PORT)))
    _make_site(folder, site, text)
    _share_keys(folder, [*roster, site])
    federation["sites"].append(site)
    write_text(path, tomlkit.dumps(document))
    return folder / site


def _like_another(folder: Path, roster: Sequence[str], site: str, port: int) -> str:
    """A site.toml with the server's address of a site whose config is here."""
    for other in roster:
        path = folder / other / "site.toml"
        if path.is_file():
            return _site_toml(site, tomllib.loads(path.read_text())["site"]["server"])
    return _site_toml(site, address_of("127.0.0.1", port))


def _listening(host: str) -> str:
    """Where a server listens that sites reach by this name: on loopback if it is of that, else everywhere."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return "127.0.0.1" if host == "localhost" else host
    return "::" if ":" in host else "0.0.0.0"


def _site_toml(site: str, address: str, fewest: int = 2, pinned: bool = True) -> str:
    return SITE_TOML.format(name=site, address=address, fewest=fewest, pinned=str(pinned).lower())


def _share_keys(folder: Path, sites: Sequence[str]) -> None:
    """Give every site whose folder is here the public keys of the others, for its operator to compare."""
    for site in sites:
        if not (folder / site).is_dir():
            continue
        (folder / site / ROSTER).mkdir(exist_ok=True)
        for other in sites:
            key = folder / "server" / "keys" / f"{other}.pub"
            if other != site and key.is_file():
                shutil.copy(key, folder / site / ROSTER)


def _make_site(folder: Path, site: str, text: str) -> None:
    """A site's folder: its key, its certificate, that of the authority, and site.toml."""
    server = folder / "server"
    make_site_key(folder / site / f"{site}.key")
    (folder / site / f"{site}.key.pub").rename(server / "keys" / f"{site}.pub")
    (folder / site / f"{site}.pem").write_bytes(admit(server, site, server / "keys" / f"{site}.pub"))
    shutil.copy(server / "certificates" / "ca.pem", folder / site / "ca.pem")
    (folder / site / "site.toml").write_text(text)
    (folder / site).chmod(0o700)  # states and models come to lie here beside the keys


def admit(server: Path, site: str, public: Path) -> bytes:
    """Keep a site's public key as keys/NAME.pub, and issue the certificate that the site needs beside it."""
    checked_site(site, "a site")
    certificate = issue_site_certificate(server / "certificates", site, read_public_key(public))
    kept = server / "keys" / f"{site}.pub"
    if public != kept:
        kept.write_bytes(public.read_bytes())
    return certificate


def renew(server: Path, sites: Sequence[str]) -> dict[str, Path]:
    """New certificates for the authority, the server and every site, with the same keys; what each site must get.

    A site whose folder stands beside the server's gets them there.
    """
    certificates = server / "certificates"
    keys = {site: read_public_key(server / "keys" / f"{site}.pub") for site in sites}
    renew_certificates(certificates)
    made = {}
    for site, key in keys.items():
        here = server.parent / site
        folder = here if (here / "site.toml").is_file() else certificates
        (folder / f"{site}.pem").write_bytes(issue_site_certificate(certificates, site, key))
        if folder is here:
            shutil.copy(certificates / "ca.pem", here / "ca.pem")
        made[site] = folder / f"{site}.pem"
    return made


def _write_example(path: Path, place: int, features: int = 4) -> None:
    """Made-up rows; their labels follow a rule that the sites share in part. Batches of 20 leave no few over."""
    shared = np.random.default_rng(0).normal(size=features)
    rng = np.random.default_rng(place + 1)
    x = rng.normal(size=(40 + 30 * place, features))
    chance = 1 / (1 + np.exp(-x @ (shared + 0.5 * rng.normal(size=features))))
    y = (rng.random(len(x)) < chance).astype(int)
    heading = ",".join([*(f"x{i}" for i in range(features)), "y"])
    lines = [",".join([*(f"{value:.6f}" for value in row), str(label)]) for row, label in zip(x, y, strict=True)]
    path.write_text("\n".join([heading, *lines]) + "\n")
