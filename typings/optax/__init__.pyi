"""What polyfed uses of Optax, which comes without types."""

from collections.abc import Callable
from typing import Any, NamedTuple

class GradientTransformation(NamedTuple):
    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]

def apply_updates(params: Any, updates: Any) -> Any: ...
def __getattr__(name: str) -> Callable[..., GradientTransformation]: ...
