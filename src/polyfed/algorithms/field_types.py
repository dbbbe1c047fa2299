"""What the type of a hyper-parameter says: whether a compiled program takes it as an input, and which values it has."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np
import optax

from polyfed.compress import Compressor
from polyfed.core.errors import PolyfedError
from polyfed.core.schedules import Decay, Inverse, InverseStep

TRACED = (float, Decay, Inverse, InverseStep, Compressor, np.ndarray, jax.Array)
"""Types whose values a compiled program takes as inputs."""
STATIC = (int, bool, str, type(None), optax.GradientTransformation)
"""Types whose values are part of the program, as functions are."""
FUNCTION = get_origin(Callable[..., object])
SEQUENCES = (list, tuple, Sequence)
BESIDE_NUMBERS = (str, int, type(None), dict)
"""What may stand beside a traced type: a name or a table that `resolve` turns into numbers, or nothing."""


@dataclass(frozen=True)
class Kind:
    """Of a hyper-parameter: whether it is traced, which numbers or words it may be, and whether it is a flag."""

    traced: bool
    numbers: Literal["real", "whole", "other"] = "other"
    words: tuple[str, ...] = ()
    flag: bool = False

    optional: bool = False
    """whether there may be none"""

    def refuse(self, owner: str, name: str, value: object) -> None:
        """Refuse a word that is not one of the words, and a flag that is neither true nor false."""
        if value is None and self.optional:
            return
        if self.words and value not in self.words:
            raise PolyfedError(f"{owner}: {name} must be one of {', '.join(self.words)}; found {value!r}")
        if self.flag and not isinstance(value, bool):
            raise PolyfedError(f"{owner}: {name} must be true or false, found {value!r}")


def kinds(cls: type, owner: str) -> dict[str, Kind]:
    """The kind of every field of a dataclass; a type that does not tell is refused."""
    assert is_dataclass(cls)
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        unknown = [field.name for field in fields(cls) if str(error.name) in str(field.type)]
        raise PolyfedError(
            f"algorithm '{owner}': the type of {', '.join(unknown) or 'a field'} cannot be resolved ({error}); define "
            "or import it in the module, outside of functions and of TYPE_CHECKING"
        ) from None
    return {field.name: _kind(hints[field.name], owner, field.name) for field in fields(cls)}


def _kind(hint: object, owner: str, name: str) -> Kind:
    members = _members(hint)
    given = [member for member in members if member is not type(None)]
    optional = len(given) < len(members)
    if given == [bool]:
        return Kind(traced=False, flag=True, optional=optional)
    if given and all(get_origin(member) is Literal for member in given):
        words = tuple(word for member in given for word in get_args(member))
        return Kind(traced=False, words=words, optional=optional)
    traced = [member for member in members if _is_traced(member)]
    others = [member for member in members if not _is_traced(member)]
    if traced and all(_may_stand_beside(member) for member in others):
        return Kind(traced=True, numbers="other" if Compressor in traced else "real")
    if not traced and all(_is_static(member) for member in others):
        return Kind(traced=False, numbers="whole" if int in others else "other")
    shown = " | ".join(getattr(member, "__name__", str(member)) for member in members)
    raise PolyfedError(
        f"algorithm '{owner}': the type of {name}, {shown}, does not tell whether a compiled program takes it as an "
        "input (float, Schedule, list[float]) or it is part of the program (int, str, bool, Literal)"
    )


def _members(hint: object) -> list[object]:
    """The parts of a union, or the type itself; names that stand for types are followed."""
    hint = _followed(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return [member for part in get_args(hint) for member in _members(part)]
    return [hint]


def _followed(hint: object) -> object:
    """The type that a `NewType` or a `type` statement gives a name to."""
    for inside in ("__supertype__", "__value__"):
        if hasattr(hint, inside):
            return _followed(getattr(hint, inside))
    return hint


def _is_traced(member: object) -> bool:
    member = _followed(member)
    if get_origin(member) in SEQUENCES:
        return all(_is_traced(part) for part in get_args(member) if part is not ...)
    return isinstance(member, type) and issubclass(member, TRACED)


def _is_static(member: object) -> bool:
    member = _followed(member)
    if get_origin(member) in SEQUENCES:
        return all(_is_static(part) for part in get_args(member) if part is not ...)
    if get_origin(member) in (Literal, FUNCTION):
        return True
    return isinstance(member, type) and issubclass(member, STATIC)


def _may_stand_beside(member: object) -> bool:
    if get_origin(member) is Literal:
        return all(isinstance(word, str) for word in get_args(member))
    kind = get_origin(member) or member
    return kind in BESIDE_NUMBERS
