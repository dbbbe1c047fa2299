"""The driver of fault histories: its schedules, its proxy, and one history."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.deploy.chaos.history import History, possible_kinds
from tests.deploy.chaos.proxy import Proxy
from tests.deploy.chaos.schedule import KINDS, SITES, schedule


def test_a_history_is_a_function_of_its_seed() -> None:
    assert schedule(7) == schedule(7)
    assert schedule(7) != schedule(8)


def test_many_seeds_have_every_kind_of_fault_at_the_server_and_at_every_site() -> None:
    faults = [fault for seed in range(60) for fault in schedule(seed).faults]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults} == {"server", *SITES}
    assert {fault.target for fault in faults if fault.kind in ("cut", "hold", "slow")} == set(SITES)
    assert {schedule(seed).minimum for seed in range(60)} == {3, 5}


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            with near:
                while data := near.recv(100):
                    near.sendall(data)

    threading.Thread(target=answer, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def test_a_proxy_forwards_holds_slows_and_cuts(echo: int) -> None:
    proxy = Proxy(echo)
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as near:
            near.sendall(b"one")
            assert near.recv(100) == b"one"
            proxy.hold()
            near.sendall(b"two")
            near.settimeout(0.3)
            with pytest.raises(TimeoutError):
                near.recv(100)
            proxy.release()
            near.settimeout(5)
            assert near.recv(100) == b"two"
            proxy.delay = 0.1
            begun = time.monotonic()
            near.sendall(b"three")
            assert near.recv(100) == b"three"
            assert time.monotonic() - begun >= 0.2  # there and back
            proxy.cut()
            assert near.recv(100) == b""
    finally:
        proxy.close()


@pytest.mark.deploy
def test_a_federation_under_faults_ends_as_if_nothing_had_happened(tmp_path) -> None:
    history = History(tmp_path / "project", schedule(0, possible_kinds()))
    history.run()
    assert history.events
