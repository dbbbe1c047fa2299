"""A site that lies to a real server, and a server that is in the wrong hands to a real site: over TLS, in processes."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from polyfed.data.tables.schema import SiteSchema, agreed_layout
from polyfed.deploy.network.gate import Gate
from polyfed.deploy.network.mailboxes import Mailboxes
from polyfed.deploy.network.running_site import RunningSite
from polyfed.deploy.network.server import known_sites, listen
from polyfed.deploy.new_site import read_published
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.site_facts import ALWAYS, FactRequest
from polyfed.deploy.protocol.tables import LARGEST_SUM, TableSettings
from polyfed.deploy.protocol.terms import Terms
from polyfed.deploy.secure.fixed_point import FixedPoint
from polyfed.deploy.secure.masks import SumMember, binding, key_stream, pair_mask
from polyfed.deploy.secure.phases import MOST_WORDS
from polyfed.deploy.secure.primitives import combined
from polyfed.deploy.settings import site_settings
from polyfed.deploy.site.table import SiteTable
from polyfed.engine.checkpoint import checkpoint as checkpoints
from polyfed.engine.round.records import as_vector
from polyfed.studies.config import algorithm_from
from polyfed.studies.newcomers.fitting import DataKind
from tests.deploy.live import SITES, Live

FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 4, "batch": 8, "weighting": "size"}


def _weight(content: RecordDict, value: Any) -> None:
    content.config_records["about"]["weight"] = value


def _scale(content: RecordDict, factor: float) -> None:
    arrays = wire.as_arrays(content.array_records["upload"])
    content["upload"] = wire.as_record({name: array * factor for name, array in arrays.items()})


def _garbage(content: RecordDict) -> None:
    record = content.array_records["upload"]
    content["upload"] = ArrayRecord({name: Array("float64", (2**40,), "numpy.ndarray", b"x") for name in record})


LIES: list[tuple[Callable[[RecordDict], None], str]] = [
    (lambda content: _weight(content, -2.0), "its weight must be a number above 0, found -2"),
    (lambda content: _weight(content, 1e9), "its weight is 1e+09, expected"),
    (lambda content: _weight(content, "heavy"), "weight must be a number, found 'heavy'"),
    (lambda content: _scale(content, 1e30), "its upload has norm"),
    (_garbage, "cannot be read"),
]


@pytest.mark.deploy
def test_a_site_that_lies_in_every_round_changes_nothing_but_its_own_part(tmp_path) -> None:
    """The honest two are summed up as if the third were absent, whatever it sends."""

    def run(folder: Path, lying: bool) -> tuple[Any, str, dict[str, int]]:
        live = Live(folder)
        live.set(FEDAVG, {"rounds": len(LIES)}, minimum=2, deadline=60.0)
        with live.link.start():
            nodes = [RunningSite(site_settings(live.folder / site)) for site in SITES]
            honest = nodes[0].site.answer

            def answer(kind: str, content: RecordDict) -> RecordDict:
                reply = honest(kind, content)
                number = content.config_records["about"].get("round", -1)
                if isinstance(number, int) and number >= 0:
                    reply = RecordDict(dict(reply))
                    reply["about"] = ConfigRecord(dict(reply.config_records["about"]))
                    LIES[number][0](reply) if lying else _weight(reply, -1.0)
                return reply

            nodes[0].site.answer = answer  # pyright: ignore[reportAttributeAccessIssue]
            try:
                request = live.link.submit()
                live.wait(lambda: live.link.ended(request) is not None)
                assert live.link.ended(request) == ""
            finally:
                for node in nodes:
                    node.stop()
        newest = checkpoints.latest(live.link.run_folder / "checkpoint")
        assert newest is not None
        refused = json.loads((newest / "meta.json").read_text())["ledger"]["refused"]
        return (
            read_published(live.link.run_folder).server,
            (live.server / "logs" / "server.log").read_text(),
            refused,
        )

    server, log, refused = run(tmp_path / "lying", True)
    for _, said in LIES:
        assert said in log
    assert refused == {"north": len(LIES)}
    without, _, _ = run(tmp_path / "without", False)
    for ours, theirs in zip(jax.tree.leaves(server), jax.tree.leaves(without), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class HostileServer:
    """The whole server is the attacker's: its keys, its certificates, and any message that it likes."""

    def __init__(self, live: Live, grid: Mailboxes) -> None:
        self.live, self.grid = live, grid

    def ask(self, site: str, kind: str, about: dict[str, Any], **arrays: dict[str, np.ndarray]) -> RecordDict:
        end = time.monotonic() + 60
        while site not in self.grid.connected():
            assert time.monotonic() < end
            time.sleep(0.1)
        content = RecordDict({name: wire.as_record(record) for name, record in arrays.items()})
        content["about"] = ConfigRecord(about)
        message = self.grid.send(site, kind, content)
        while not (came := self.grid.answers([message])):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert not came[0].error, came[0].error
        return came[0].content


@contextmanager
def hostile(live: Live) -> Iterator[HostileServer]:
    """The server that listens in a federation's place, and sends what a test tells it to."""
    sites = live.link.federation.sites
    mail = Mailboxes(sites)
    listen(live.server, live.link.federation, Gate(known_sites(live.server, sites), 10**9, mail))
    yield HostileServer(live, mail)


@dataclasses.dataclass
class ManInTheMiddle:
    """A server that gives 'north' keys of its own in the place of all other sites' keys."""

    server: HostileServer
    about: dict[str, Any]
    """what the message says that asks for an upload, or for sums of a table"""
    broadcast: dict[str, np.ndarray]
    size: int
    run: str
    attempt: str

    def phase(self, phase: str, **more: Any) -> dict[str, Any]:
        head = {"run": self.run, "round": 0, "attempt": self.attempt, "phase": phase, **more}
        about = self.server.ask("north", "query", {"secure": json.dumps(head)}).config_records["about"]
        return {"error": about["error"]} if "error" in about else json.loads(str(about["secure"]))

    def upload(self) -> Any:
        """What 'north' adds to the sum, without its masks; or why it does not give it."""
        point = FixedPoint(LARGEST_SUM, 3, MOST_WORDS) if "sums" in self.about else FixedPoint(1e6, 3)
        numbers = {"threshold": 2, "roster": SITES, **dataclasses.asdict(point)}
        public = {"north": self.phase("keys", **numbers)}
        forged = {name: SumMember(name, self.attempt, 2) for name in SITES[1:]}
        public |= {name: member.public_keys() for name, member in forged.items()}
        given = self.phase("shares", public=public)
        if "error" in given:
            return given["error"]
        made = {name: member.shares(public) for name, member in forged.items()}
        commitments = {"north": given["commitments"], **{name: m.commitments() for name, m in forged.items()}}
        head = {"run": self.run, "round": 0, "attempt": self.attempt, "phase": "upload"}
        last = {**head, "sealed": {name: sealed["north"] for name, sealed in made.items()}, "commitments": commitments}
        arrays = {"broadcast": self.broadcast} if self.broadcast else {}
        reply = self.server.ask("north", "train", {**self.about, "secure": json.dumps(last)}, **arrays)
        assert "error" not in reply.config_records["about"], reply.config_records["about"]["error"]
        words, bound = wire.as_arrays(reply.array_records["masked"])["words"], binding(self.attempt, public)
        assert words.size == self.size * point.words
        shares = []
        for name, member in forged.items():
            others = {other: sealed[name] for other, sealed in made.items() if other != name}
            member.masked(words, {"north": given["sealed"][name], **others}, commitments)
            shares.append(bytes.fromhex(member._held["north"]["seed"]))
            words = words + pair_mask(member._mask_key, name, "north", public["north"]["mask"], words.size, bound)
        return point.decoded(words - key_stream(combined(shares), words.size))


@pytest.mark.deploy
def test_a_server_in_the_middle_reads_a_masked_upload_unless_sites_pinned_each_others_keys(tmp_path) -> None:
    """Without pinned keys the attack succeeds, as docs/threat-model.md says; with them the site gives nothing.

    Where it succeeded, the server asks for the same once more in a sum without one site, to subtract the two: for a
    round's upload in another run, for the sums of a table by another question.
    """
    live = Live(tmp_path / "project")
    north = live.folder / "north"
    path, roster = north / "site.toml", north / "roster"
    path.write_text(path.read_text().replace("pinned_sites = true", "pinned_sites = false"))
    roster.rename(tmp_path / "roster")
    site = site_settings(north).site()
    rows = site.federation
    assert isinstance(rows, SiteTable)
    kind = DataKind.of(rows.prepared(None), "logistic")
    terms = Terms("study", "north", algorithm_from(FEDAVG), {"loss": "logistic"}, kind, 60, 0, None, "float64")
    terms = dataclasses.replace(terms, rounds=5, fewest=2, roster=tuple(SITES), secure=True)
    work = site._working(terms)
    start = jax.tree.map(np.zeros_like, work.broadcast)
    expected = as_vector(work.local(start, work.prepared(), 0).sent)
    broadcast = {name: np.asarray(array) for name, array in wire.named(start).items()}
    asked = TableSettings()
    layout = agreed_layout([SiteSchema.of(rows.sums(asked))] * 3, ())
    told = layout.vector(rows.sums(asked))
    try:
        with hostile(live) as server:

            def uploads(run: str, attempt: str) -> ManInTheMiddle:
                about = {"terms": dataclasses.replace(terms, run=run).to_json(), "round": 0, "counted": -1}
                return ManInTheMiddle(server, about, broadcast, expected.size, run, attempt)

            def tables(asked: TableSettings, attempt: str) -> ManInTheMiddle:
                about = {"sums": json.dumps(layout.to_json()), "schema": asked.to_json()}
                return ManInTheMiddle(server, about, {}, told.size, "study", attempt)

            live.start("north")
            others = (uploads("again", "second"), tables(TableSettings(min_count=9), "fourth"))
            sums = (uploads("study", "first"), tables(asked, "third"))
            for stolen, again, whole in zip(sums, others, (expected, told), strict=True):
                np.testing.assert_allclose(stolen.upload(), whole, atol=1e-6)
                assert set(stolen.phase("reveal", there=SITES, gone=[])["seed"]) == set(SITES)
                again.upload()
                assert again.phase("reveal", there=SITES[:2], gone=SITES[2:]) == {"before": sorted(SITES)}
            live.children["north"].kill()
            (tmp_path / "roster").rename(roster)
            live.start("north")
            live.wait(lambda: live.children["north"].log.read_text().count("connected to") == 2)
            for forged in (uploads("study", "fifth"), tables(asked, "sixth")):
                said = "the mask keys of site 'south' are not signed by the key that is pinned here"
                assert forged.upload() == said
    finally:
        live.stop()


@pytest.mark.full
def test_a_server_in_the_wrong_hands_gets_neither_rows_nor_files_of_a_site(tmp_path) -> None:
    live = Live(tmp_path / "project", SITES[:2], changes="ask")
    path = live.folder / "north" / "site.toml"
    path.write_text(path.read_text().replace("smallest_batch = 1", "smallest_batch = 8"))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    live.start("north")
    try:
        with hostile(live) as server:
            asked = {"schema": TableSettings().to_json()}
            columns = json.loads(str(server.ask("north", "query", asked).config_records["about"]["schema"]))["columns"]
            single = TableSettings(columns={next(iter(columns)): {"missing": ["1"]}})
            reply = server.ask("north", "query", {"schema": single.to_json()}).config_records["about"]
            assert "the questions about its table are not those that its operator accepted" in str(reply["error"])
            request = FactRequest(ALWAYS, "logistic", {"model": "linear", "loss": "logistic"})
            facts = server.ask("north", "query", {"request": request.to_json()}).config_records["about"]
            kind = DataKind.from_json(json.loads(str(facts["facts"]))["kind"])
            method = algorithm_from({**FEDAVG, "batch": 14})
            honest = Terms(
                "study",
                "north",
                method,
                {"model": "linear", "loss": "logistic", "l2": 0.0},
                kind,
                60,
                0,
                None,
                "float64",
            )
            honest = dataclasses.replace(honest, rounds=5, fewest=2, roster=("north", "south"))
            one_row = algorithm_from({**FEDAVG, "batch": 1, "local_steps": 1, "lr": 1.0})
            broadcast = {"b": np.zeros(1), "w": np.zeros((4, 1))}
            for terms, said in (
                (dataclasses.replace(honest, run="../../x"), "the terms have a name that is none"),
                (dataclasses.replace(honest, method=one_row), "its policy allows batches of at least 8 rows"),
                (dataclasses.replace(honest, site="south"), "a message for site 'south'"),
            ):
                about = {"terms": terms.to_json(), "round": 0, "counted": -1}
                reply = server.ask("north", "train", about, broadcast=broadcast)
                assert said in str(reply.config_records["about"]["error"])
                assert not reply.array_records
            about = {"terms": honest.to_json(), "round": 0, "counted": -1}
            shapes = server.ask("north", "train", about, broadcast=broadcast).config_records["about"]
            assert "error" not in shapes or "broadcast" in str(
                shapes["error"]
            )  # these terms it would have worked under
            changed = dataclasses.replace(honest, rounds=6).to_json()
            reply = server.ask("north", "train", {**about, "terms": changed}, broadcast=broadcast)
            assert "`polyfed deploy accept` there accepts them" in str(reply.config_records["about"]["error"])
    finally:
        live.stop()
    after = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(live.folder / "north" in path.parents for path in after)
    assert (live.folder / "north" / "terms.json").exists()
