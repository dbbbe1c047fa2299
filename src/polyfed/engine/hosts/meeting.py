"""How the guards of a run on several hosts find each other, and what they say: one JSON object per line."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

from polyfed.core.errors import PolyfedError
from polyfed.engine.hosts.team import MEETING_SECONDS, Team, is_loopback

GRACE_SECONDS = 5.0
"""How long one guard waits for another to connect or to introduce itself."""
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A host that does not answer is given up after half a minute."""
LONGEST_LINE = 1 << 16

Message = dict[str, str | int]


class Connection:
    """A connection to another guard."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket, self._unfinished_line = connected, b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, **message: str | int) -> None:
        """Send a message; an error is left to `receive`, which sees that the connection has ended."""
        with suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """The messages that have come; None where the connection has ended, or the other end is no guard."""
        try:
            received = self.socket.recv(LONGEST_LINE)
            *lines, self._unfinished_line = (self._unfinished_line + received).split(b"\n")
            messages = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return None
        if not received or len(self._unfinished_line) >= LONGEST_LINE:
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None


def meet(team: Team, task: str) -> tuple[dict[int, Connection], str]:
    """Connect the guards of a team: the connections by process, and the address of JAX's own service.

    Process 0 waits for all the others, and refuses those that were started with another `task`. The others have one
    connection each, to process 0.
    """
    deadline = time.monotonic() + MEETING_SECONDS
    return _await_all(team, task, deadline) if team.index == 0 else _join(team, task, deadline)


def _await_all(team: Team, task: str, deadline: float) -> tuple[dict[int, Connection], str]:
    try:
        server = _listening(team.host, team.port)
    except OSError as error:
        raise PolyfedError(f"process 0 cannot listen at {team.host}:{team.port}: {error.strerror}") from None
    connections: dict[int, Connection] = {}
    with server:
        while len(connections) < team.count - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection = Connection(server.accept()[0])
            except TimeoutError:
                missing = [team.title(index) for index in range(1, team.count) if index not in connections]
                raise PolyfedError(f"{', '.join(missing)} did not come within {MEETING_SECONDS} seconds") from None
            connection.socket.settimeout(GRACE_SECONDS)
            hello = (connection.receive() or [{}])[0]
            index = hello.get("index")
            if hello.get("count") != team.count or not isinstance(index, int) or not 0 < index < team.count:
                connection.send(refused=f"process 0 expects {team.count} processes")
            elif index in connections:
                connection.send(refused=f"there is a process {index} already")
            elif hello.get("work") != task:
                connection.send(refused=f"process 0 runs something else: {task}")
            else:
                connection.socket.settimeout(None)
                connections[index] = connection
    coordinator = f"{team.host}:{_free_port(team.host)}"
    for connection in connections.values():
        connection.send(coordinator=coordinator)
    return connections, coordinator


def _join(team: Team, task: str, deadline: float) -> tuple[dict[int, Connection], str]:
    while True:
        try:
            address = (team.host.strip("[]"), team.port)
            connection = Connection(socket.create_connection(address, timeout=GRACE_SECONDS))
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise PolyfedError(
                    f"{team.title(0)} does not answer at {team.host}:{team.port}: {error.strerror or error}"
                ) from None
            time.sleep(0.2)
    connection.socket.settimeout(max(1.0, deadline - time.monotonic()))
    connection.send(index=team.index, count=team.count, work=task)
    answer = (connection.receive() or [{"refused": "the connection to process 0 has ended"}])[0]
    if "coordinator" not in answer:
        raise PolyfedError(f"{team.title(team.index)} cannot take part: {answer.get('refused')}")
    connection.socket.settimeout(None)
    return {0: connection}, str(answer["coordinator"])


def _free_port(host: str) -> int:
    with _listening(host, 0) as probe:
        return probe.getsockname()[1]


def _listening(host: str, port: int) -> socket.socket:
    """A server at a loopback address, or at all addresses of this machine."""
    if is_loopback(host):
        address = host.strip("[]")
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    both = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
