"""Run a notebook in an empty folder, and write it with what its cells show: `python execute.py IN OUT`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    book = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, target)


if __name__ == "__main__":
    main()
