"""What to say when something that is no model was given as one."""

from __future__ import annotations

from polyfed.core.errors import suggestion
from polyfed.models import MODELS


def what_was_found(model: object) -> str:
    """What was expected, and what this is instead."""
    if isinstance(model, str) and model in MODELS:
        example = "mlp([64])" if model == "mlp" else f"{model}()"
        return f"expected a model, such as models.{example}, found the word {model!r}"
    if isinstance(model, str):
        return f"unknown model {model!r}{suggestion(model, MODELS)}"
    if model in MODELS.values():
        name = getattr(model, "__name__", "")
        return f"expected a model, such as models.{name}(), found the function {name} itself"
    kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    return f"expected a model of polyfed.models, an Equinox module or a pair (init, apply), found {kind}"
