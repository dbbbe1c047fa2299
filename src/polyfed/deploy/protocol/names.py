"""Names of sites and runs: they become files and folders, so they are checked wherever they arrive."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polyfed.core.errors import PolyfedError

NAME = re.compile(r"\w(?:[\w .-]{0,62}[\w-])?")


def is_name(value: object) -> bool:
    """Letters, digits, spaces, points, '-' and '_', at most 64, beginning with a letter, a digit or '_'."""
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def checked_name(value: object, what: str) -> str:
    """The name, or an error that says what it was to be the name of."""
    if isinstance(value, str) and is_name(value):
        return value
    raise PolyfedError(
        f"{what} must be a name of at most 64 letters, digits, spaces, points, '-' and '_', beginning with a letter "
        f"or a digit, found {value!r:.80}"
    )


RESERVED = frozenset(("server", "ca", "readme.md"))
"""Not for sites: NAME.pem, NAME.pub and a folder NAME would be the server's, the authority's, or a project's README."""


def is_site(value: object) -> bool:
    """Whether a site can be called so."""
    return isinstance(value, str) and is_name(value) and value.casefold() not in RESERVED


def checked_site(value: object, what: str) -> str:
    """The name of a site: beside certificates and folders of sites stand the server's own."""
    name = checked_name(value, what)
    if name.casefold() in RESERVED:
        raise PolyfedError(f"{what} cannot be called {name!r}: that is the name of a file or folder of the server")
    return name


def checked_sites(names: Sequence[object], what: str) -> tuple[str, ...]:
    """A roster. Some file systems take names for the same that differ in capitals alone."""
    sites = tuple(checked_site(name, f"{what}: each of them") for name in names)
    if not sites or len({site.casefold() for site in sites}) < len(sites):
        raise PolyfedError(f"{what} must be different names, not in capitals alone, found {', '.join(sites) or 'none'}")
    return sites
