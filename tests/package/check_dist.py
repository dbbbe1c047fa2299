"""What `make dist` made, as an index and a stranger see it: `python -m tests.package.check_dist FOLDER PYTHON`.

FOLDER has the wheel and the sdist; PYTHON is that of an environment with the wheel and nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

MOST_REPORT = 1_500_000
"""Bytes that the demo's report may have."""
MOST_SDIST = 6_000_000


def main() -> int:
    folder, python = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    problems = [*problems_of_metadata(wheel), *problems_of_sdist(sdist), *problems_of_the_demo(python)]
    for problem in problems:
        print(f"dist: {problem}", file=sys.stderr)
    return 1 if problems else 0


def problems_of_metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = files.read(name).decode()
    links = re.findall(r"\]\(([^)\s]+)\)", metadata)
    found = [f"the description has a relative link: {link}" for link in links if not re.match(r"https?:|#", link)]
    wanted = ("Maintainer: ", "Project-URL: Homepage", "Project-URL: Changelog", "Classifier: Operating System")
    found += [f"the metadata have no '{key}'" for key in wanted if key not in metadata]
    return found


def problems_of_sdist(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as files:
        names = files.getnames()
    found = [f"the sdist has a picture: {name}" for name in names if name.endswith((".png", ".svg"))]
    if sdist.stat().st_size > MOST_SDIST:
        found.append(f"the sdist has {sdist.stat().st_size:,} bytes, at most {MOST_SDIST:,} are expected")
    return found


def problems_of_the_demo(python: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run([python, "-m", "polyfed", "demo"], cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            return [f"`polyfed demo` ended with code {done.returncode}: {done.stderr[-2000:]}"]
        print(done.stdout)
        report = (Path(place) / "runs/demo/report.html").stat().st_size
    return [f"the demo's report has {report:,} bytes, at most {MOST_REPORT:,} are expected"] * (report > MOST_REPORT)


if __name__ == "__main__":
    sys.exit(main())
