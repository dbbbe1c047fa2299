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
from polyfed.deploy.configs import KEYS, NO_KEYS, PORT, refuse_filled, site_toml, write_configs
from polyfed.deploy.keys import (
    as_general_name,
    issue_site_certificate,
    make_certificates,
    make_site_key,
    read_public_key,
    renew_certificates,
)
from polyfed.deploy.protocol.names import checked_site, checked_sites
from polyfed.deploy.settings import ROSTER, address_of


def make_project(folder: Path, sites: Sequence[str], host: str, port: int = PORT, example: bool = False) -> None:
    """Write the project; `example` gives every site some made-up rows."""
    refuse_filled(folder)
    checked_sites(sites, "sites")
    as_general_name(host)
    write_configs(folder, sites)
    add_keys(folder, host, port)
    for place, site in enumerate(sites if example else ()):
        _write_example(folder / site / "data.csv", place)


def add_keys(folder: Path, host: str, port: int = PORT) -> None:
    """Make certificates and keys for a project that has none, and put the server's address into its configs."""
    as_general_name(host)
    server, hosts = folder / "server", list(dict.fromkeys([host, "localhost", "127.0.0.1"]))
    path = server / "server.toml"
    document = _parsed(path)
    sites = _roster(document, path)
    checked_sites(sites, f"{path}: federation.sites")
    configs = {site: _parsed(folder / site / "site.toml") for site in sites}
    federation: Any = document["federation"]
    federation["host"] = _listening(host)
    federation["port"] = port
    make_certificates(server / "certificates", hosts)
    write_text(path, tomlkit.dumps(document))
    (server / "keys").mkdir(exist_ok=True)
    for site, config in configs.items():
        own: Any = config["site"]
        own["server"] = address_of(host, port)
        _make_site(folder, site, tomlkit.dumps(config))
    _share_keys(folder, sites)
    server.chmod(0o700)  # states and models come to lie here beside the keys
    readme = folder / "README.md"
    if readme.is_file():
        write_text(readme, readme.read_text().replace(NO_KEYS, KEYS.format(hosts=", ".join(hosts))))


def _parsed(path: Path) -> tomlkit.TOMLDocument:
    """A config, to be changed with its comments."""
    try:
        return tomlkit.parse(path.read_text())
    except (OSError, ValueError) as error:
        raise PolyfedError(f"{path}: cannot be read: {error}") from None


def _roster(document: tomlkit.TOMLDocument, path: Path) -> list[str]:
    federation: Any = document.get("federation")
    if not isinstance(federation, dict) or not isinstance(federation.get("sites"), list) or not federation["sites"]:
        raise PolyfedError(f"{path}: federation.sites must be a list of names")
    return [str(name) for name in federation["sites"]]


def add_site(folder: Path, site: str) -> Path:
    """A further site of a project: its folder with key, certificate and config, and its name on the roster."""
    server = folder / "server"
    path = server / "server.toml"
    document = _parsed(path)
    roster = _roster(document, path)
    federation: Any = document["federation"]
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
            return site_toml(site, str(tomllib.loads(path.read_text())["site"]["server"]))
    return site_toml(site, address_of("127.0.0.1", port))


def _listening(host: str) -> str:
    """Where a server listens that sites reach by this name: on loopback if it is of that, else everywhere."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return "127.0.0.1" if host == "localhost" else host
    return "::" if ":" in host else "0.0.0.0"


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
