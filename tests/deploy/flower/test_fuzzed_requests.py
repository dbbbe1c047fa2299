"""What a certified site may send below the messages: its own requests, changed at random, to a real server at work."""

from __future__ import annotations

import base64
from collections import Counter

import httpx
import numpy as np
import pytest
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import sign_message
from flwr.supernode.fleet_http_client import FleetHttpClient

from polyfed.deploy.flower.supernode import SuperNode
from polyfed.deploy.keys import public_bytes, read_private_key, site_context
from polyfed.deploy.settings import site_settings
from tests.deploy.live import SITES, Live

REQUESTS, ROUNDS = 1500, 8
FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 4, "batch": 8, "weighting": "size"}


class Recorder:
    """Keeps the requests that a site makes."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def intercept(self, context, call_next):
        request = context.request
        kinds = {name: value for name, value in request.headers.items() if name.startswith(("content-type", "accept"))}
        self.requests.append((request.url.path, kinds, request.content))
        return call_next(context)


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
    recorder = Recorder()
    honest = SuperNode._client

    def recorded(node: SuperNode) -> FleetHttpClient:
        client = honest(node)
        if node.settings.name == "north":
            client._interceptors = (*client._interceptors, recorder)  # pyright: ignore[reportAttributeAccessIssue]
        return client

    monkeypatch.setattr(SuperNode, "_client", recorded)
    folder, rng = live.folder / "north", np.random.default_rng(0)
    key = read_private_key(folder / "north.key")
    claimed = base64.b64encode(public_bytes(key.public_key())).decode()
    answers: Counter[int] = Counter()
    with live.link.start():
        nodes = {site: SuperNode(site_settings(live.folder / site)) for site in SITES}
        try:
            request = live.link.submit()
            live.wait(lambda: live.rounds() >= 2)
            nodes["north"].stop()
            seen = {path for path, _, _ in recorder.requests}
            assert {"/v1/fleet/push-messages", "/v1/fleet/push-object", "/v1/fleet/pull-messages"} <= seen
            context = site_context(folder / "ca.pem", folder / "north.pem", key)
            with httpx.Client(verify=context, base_url=f"https://{live.link.address}", timeout=30) as client:
                for place in range(REQUESTS):
                    path, kinds, content = recorder.requests[place % len(recorder.requests)]
                    time = now().isoformat()
                    signed = base64.b64encode(sign_message(key, time.encode())).decode()
                    heads = {TIMESTAMP_HEADER: time, FLEET_HTTP_SIGNATURE_HEADER: signed}
                    heads |= {FLEET_HTTP_PUBLIC_KEY_HEADER: claimed, **kinds}
                    answers[client.post(path, content=changed(content, rng), headers=heads).status_code] += 1
            nodes["north"] = SuperNode(site_settings(live.folder / "north"))  # for the end, which every site is told
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
    assert answers[200] < REQUESTS / 2  # most are refused
