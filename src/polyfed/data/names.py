"""Names for clients that have none of their own: client-000, client-001, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class ClientNames(Sequence[str]):
    """The names of so many clients, made when they are asked for; a name does not depend on how many there are."""

    def __init__(self, clients: int) -> None:
        self._clients = clients

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._clients)))
        if not -self._clients <= index < self._clients:
            raise IndexError(index)
        return f"client-{index % self._clients:03d}"

    def index(self, value: str, start: int = 0, stop: int | None = None) -> int:
        number = value.removeprefix("client-")
        stop = self._clients if stop is None else stop
        if number.isdecimal() and start <= int(number) < stop and self[int(number)] == value:
            return int(number)
        raise ValueError(value)

    def __contains__(self, value: object) -> bool:
        try:
            return isinstance(value, str) and self.index(value) >= 0
        except ValueError:
            return False
