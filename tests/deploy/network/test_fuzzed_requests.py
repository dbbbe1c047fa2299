"""What a certified site may send below the messages: its own requests, changed at random, to a real server at work."""

from __future__ import annotations

from collections import Counter

import httpx
import numpy as np
import pytest

from polyfed.deploy.keys import read_private_key, site_context
from polyfed.deploy.network import gate
from polyfed.deploy.network.running_site import RunningSite
from polyfed.deploy.settings import site_settings
from tests.deploy.live import SITES, Live

REQUESTS, ROUNDS = 1500, 8
FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 4, "batch": 8, "weighting": "size"}


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, cut, doubled, put in or replaced."""
    changes = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        where = int(rng.integers(len(changes) + 1))
        action = rng.integers(5)
        if action == 0 and where < len(changes):
            changes[where] ^= 1 << int(rng.integers(8))
        elif action == 1:
            del changes[where : where + int(rng.integers(1, 30))]
        elif action == 2:
            changes[where:where] = changes[: int(rng.integers(1, 60))]
        elif action == 3:
            changes[where:where] = rng.bytes(int(rng.integers(1, 20)))
        else:
            changes[where : where + 4] = b"\xff\xff\xff\x7f"
    return bytes(changes)


@pytest.mark.deploy
def test_requests_that_are_none_neither_stop_nor_change_a_run_at_work(tmp_path, monkeypatch) -> None:
    live = Live(tmp_path / "project")
    live.set(FEDAVG, {"rounds": ROUNDS}, minimum=2, deadline=3.0)
    recorded: list[tuple[str, bytes]] = []
    honest = RunningSite._client

    def record(request: httpx.Request) -> None:
        content = request.read()
        recorded.append((request.url.path, content))

    def client_of(site: RunningSite) -> httpx.Client:
        client = honest(site)
        if site.settings.name == "north":
            client.event_hooks = {"request": [record]}
        return client

    monkeypatch.setattr(RunningSite, "_client", client_of)
    folder, rng = live.folder / "north", np.random.default_rng(0)
    answers: Counter[int] = Counter()
    with live.link.start():
        nodes = {site: RunningSite(site_settings(live.folder / site)) for site in SITES}
        try:
            request = live.link.submit()
            live.wait(lambda: live.rounds() >= 2)
            nodes["north"].stop()
            assert {gate.CONNECT, gate.NEXT, gate.ANSWER} <= {path for path, _ in recorded}
            context = site_context(folder / "ca.pem", folder / "north.pem", read_private_key(folder / "north.key"))
            kept = [(path, content) for path, content in recorded if path != gate.NEXT or rng.random() < 0.1]
            message = "0" * 32
            with httpx.Client(verify=context, base_url=f"https://{live.link.address}", timeout=30) as client:
                session = client.post(gate.CONNECT).text
                for place in range(REQUESTS):
                    if place % 3 == 0:  # so that changed answers get past the gate
                        given = client.post(gate.NEXT, headers={gate.SESSION: session})
                        session = session if given.status_code != 409 else client.post(gate.CONNECT).text
                        message = given.headers.get(gate.MESSAGE, message)
                    path, content = kept[place % len(kept)]
                    heads = {gate.SESSION: session.encode(), gate.MESSAGE: message.encode()}
                    if rng.random() < 0.2:
                        name = (gate.SESSION, gate.MESSAGE)[rng.integers(2)]
                        heads[name] = bytes(byte for byte in changed(heads[name], rng) if byte > 32 and byte != 127)
                    body = changed(content, rng) if path == gate.ANSWER or rng.random() < 0.1 else content
                    answers[client.post(path, content=body, headers=heads).status_code] += 1
            nodes["north"] = RunningSite(site_settings(live.folder / "north"))  # for the end, which every site is told
            live.wait(lambda: live.link.ended(request) is not None)
            assert live.link.ended(request) == ""
            while live.link.without_result():  # a site came back too late for the end
                live.wait(lambda: "north" in live.online())
                again = live.link.submit()
                live.wait(lambda again=again: live.link.ended(again) == "")
        finally:
            for node in nodes.values():
                node.stop()
    lines = live.link.progress()
    assert [line["round"] for line in lines] == list(range(1, ROUNDS + 1))
    live.assert_equal([line["sites"] for line in lines])
    assert answers[204] + answers[200] < 0.9 * REQUESTS
    assert answers[403] > 50  # answers to what it was not sent
    assert answers.keys() <= {200, 204, 403, 409, 413}
    log = (live.server / "logs" / "server.log").read_text()
    assert "its answer cannot be read" in log
    assert "Traceback" not in log
