"""The package opens without what it may not need: large libraries are loaded when a command or a call uses them."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import polyfed as pf

LARGE = ("jax", "jaxlib", "pandas", "matplotlib", "sklearn", "pyarrow", "flwr", "scipy")
COMMAND = "import polyfed.cli.main, sys\nsys.argv = {}\ntry:\n    polyfed.cli.main.main()\nexcept SystemExit:\n    pass"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import polyfed; dir(polyfed); polyfed.PolyfedError", ""),
        (COMMAND.format(["polyfed", "--help"]), "Usage: polyfed"),
        (COMMAND.format(["polyfed", "--version"]), f"polyfed {pf.__version__}"),
        (COMMAND.format(["polyfed", "run", "--help"]), "Usage: polyfed run"),
        (COMMAND.format(["polyfed", "data", "list", "--help"]), "Usage: polyfed data list"),
        (COMMAND.format(["polyfed", "rum"]), "unknown command 'rum'; did you mean 'run'?"),
    ],
    ids=["import", "help", "version", "run --help", "data list --help", "a misspelt command"],
)
def test_no_large_library_is_loaded_before_it_is_needed(code: str, printed: str) -> None:
    look = f"\nimport sys\nprint('loaded:', [name for name in {LARGE} if name in sys.modules])"
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + look], capture_output=True, text=True, check=True, env=environment
    )
    assert printed in " ".join((done.stdout + done.stderr).split())
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_of_flower_public_names_alone_are_used() -> None:
    """Its inner modules change with every version."""
    root, used = Path(pf.__file__).parent, set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
                used |= {(node.module, name.name) for name in node.names}
            elif isinstance(node, ast.Import):
                used |= {(name.name, "") for name in node.names if name.name.split(".")[0] == "flwr"}
    assert used
    for module, name in used:
        assert module in ("flwr.app", "flwr.clientapp", "flwr.serverapp"), f"{module} is an inner module of Flower"
        assert name in importlib.import_module(module).__all__, f"{module}.{name} is no public name of Flower"


def test_the_package_shows_its_public_names_and_nothing_else() -> None:
    assert dir(pf) == sorted([*pf.__all__, "__version__"])
    for name in pf.__all__:
        assert getattr(pf, name) is not None
    assert dir(pf) == sorted([*pf.__all__, "__version__"])  # also after all of them were loaded


def test_everything_public_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from polyfed import *", names)
    assert set(pf.__all__) <= set(names)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'polyfed' has no attribute 'nonsense'"):
        _ = pf.nonsense
