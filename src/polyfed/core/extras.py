"""Packages that are not part of the plain install. Where one is missing, a sentence says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from polyfed.core.errors import PolyfedError


def extra_package(module: str, extra: str, who: str) -> Any:
    """The module, or a sentence that names the extra of polyfed that brings it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise PolyfedError(
            f"{who} needs the package {NAMES.get(package, package)}, which is not installed: "
            f"pip install 'polyfed[{extra}]'"
        ) from None


NAMES = {"sklearn": "scikit-learn", "flwr_datasets": "flwr-datasets", "dp_accounting": "dp-accounting"}
"""What packages are called where this is not the name that is imported."""
