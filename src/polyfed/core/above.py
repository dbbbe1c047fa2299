"""What a user reaches from a result, but stands on a floor above it: found by name, when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def from_above(module: str, name: str) -> Any:
    """A function of a module of polyfed that the caller may not import, as an import goes down."""
    return getattr(import_module(f"polyfed.{module}"), name)
