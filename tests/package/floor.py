"""Install the lowest and the newest versions that pyproject.toml allows, and run every command with them.

`python -m tests.package.floor [--python 3.11 ...] [--bounds lowest newest] [--plain] [--jobs 2]`: for every interpreter
that this machine has, an environment of its own in build/floor, with all extras or, with `--plain`, with none. Each has
its output in build/floor/NAME.log. The lowest version of a dependency is the lowest that has a wheel for this Python.
Compiled programs are shared: they depend on JAX and not on Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "floor"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}
UV = Path(sys.executable).with_name("uv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="*", default=PYTHONS)
    parser.add_argument("--bounds", nargs="*", choices=list(RESOLUTION), default=list(RESOLUTION))
    parser.add_argument("--plain", action="store_true", help="without any extra")
    parser.add_argument("--jobs", type=int, default=2, help="environments side by side")
    asked = parser.parse_args()
    found = {version: interpreter(version) for version in asked.python}
    missing = [version for version, path in found.items() if path is None]
    PLACE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(asked.jobs) as pool:
        outcomes = {
            f"Python {version}, {bound}": pool.submit(tried, path, version, bound, plain=asked.plain)
            for version, path in found.items()
            if path is not None
            for bound in asked.bounds
        }
    outcomes = {title: done.result() for title, done in outcomes.items()}
    for title, good in outcomes.items():
        print(f"{title}: {'every command works' if good else 'FAILED'}")
    if missing:
        print(f"not on this machine: Python {', '.join(missing)}")
    return 0 if outcomes and all(outcomes.values()) else 1


def interpreter(version: str) -> str | None:
    """The path of this Python, where the machine has it, be it by pyenv."""
    by_pyenv = map(str, (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin"))
    environment = {**os.environ, "PATH": os.pathsep.join([*by_pyenv, os.environ["PATH"]])}
    command = [UV, "python", "find", "--no-project", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.stdout.strip() or None


def tried(python: str, version: str, bound: str, *, plain: bool) -> bool:
    """Whether polyfed installs and every command works, or says which extra it needs."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = ",".join(name for name in extras if name not in ("dev", "docs"))
    place = PLACE / f"{version}-{bound}{'-plain' if plain else ''}"
    shutil.rmtree(place, ignore_errors=True)
    environment = {name: text for name, text in os.environ.items() if name != "PIP_CONSTRAINT"}
    environment["POLYFED_CACHE"] = str(PLACE / "cache")
    inside = place / "bin" / "python"
    what = [f"{ROOT}{'' if plain else f'[{asked}]'}", "--only-binary", ":all:", "--no-binary", "polyfed"]
    log = PLACE / f"{place.name}.log"
    log.unlink(missing_ok=True)
    print(f"{place.name}: begun, see {log.relative_to(ROOT)}", flush=True)
    for command in (
        [UV, "venv", "--quiet", "--python", python, place],
        [UV, "pip", "install", "--quiet", "--python", inside, "--resolution", RESOLUTION[bound], *what],
        [UV, "pip", "list", "--quiet", "--python", inside],
        [inside, Path(__file__).with_name("every_command.py"), place / "work"],
    ):
        with log.open("a") as out:
            print(f"{place.name}: {' '.join(map(str, command))}", file=out, flush=True)
            done = subprocess.run(command, env=environment, stdout=out, stderr=out, check=False)
        if done.returncode:
            break
    print("".join(f"{place.name}: {line}\n" for line in log.read_text().splitlines()[-5:]), end="", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
