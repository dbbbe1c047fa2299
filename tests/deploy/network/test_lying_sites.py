"""Sites that lie to a real server, each a process of its own, over TLS: nothing counts but what the others send."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.core.errors import PolyfedError
from polyfed.deploy.network.processes import ChildProcess, environment
from polyfed.deploy.new_site import read_published
from polyfed.deploy.settings import site_settings
from polyfed.deploy.site.table import SiteTable
from polyfed.engine.checkpoint import checkpoint as checkpoints
from tests.compilation import QUICK
from tests.deploy.expected import close
from tests.deploy.lies import FACTS, HOSTILE
from tests.deploy.live import SITES, Live

FEDAVG = {"name": "fedavg", "lr": 0.1, "local_steps": 4, "batch": 8, "weighting": "size"}
STATEFUL = {"name": "scaffold", "lr": 0.1, "local_steps": 3, "batch": 4, "trust": "never"}
POLYFED = str(Path(sys.executable).parent / "polyfed")


class Besieged(Live):
    """A federation some of whose sites lie: their process is `tests.deploy.hostile_site`."""

    def lie(self, site: str = "north", /, **how: Any) -> None:
        part = self.folder / site / "lie.part"
        part.write_text(json.dumps(how))
        os.replace(part, self.folder / site / "lie.json")

    def begin(self, *liars: str) -> None:
        self.start("server")
        for site in self.sites:
            if site in liars:
                self.start_liar(site)
            else:
                self.start(site)
        self.wait(lambda: "waiting for" in self.children["server"].log.read_text())

    def start_liar(self, site: str) -> None:
        where = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
        env = environment(self.folder / site / "flower", XLA_FLAGS=QUICK, PYTHONPATH=where)
        command = ["python", "-m", "tests.deploy.hostile_site", str(self.folder / site)]
        self.children[site] = ChildProcess(command, env, self.folder / site / "logs" / "polyfed.log")

    def ended(self, back: int | None = None) -> str:
        """Run what server.toml says to its end; why it stopped, empty if it is complete."""
        request = self.link.submit(back)
        self.wait(lambda: self.link.ended(request) is not None)
        return self.link.ended(request) or ""

    @property
    def log(self) -> str:
        return (self.server / "logs" / "server.log").read_text()

    @property
    def refused(self) -> dict[str, int]:
        newest = checkpoints.latest(self.link.run_folder / "checkpoint")
        assert newest is not None
        return json.loads((newest / "meta.json").read_text())["ledger"]["refused"]

    def command(self, *words: str) -> str:
        done = subprocess.run([POLYFED, "deploy", *words], capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def besieged(tmp_path: Path) -> Iterator[Besieged]:
    live = Besieged(tmp_path / "project")
    yield live
    live.stop()


@pytest.mark.full
def test_malformed_answers_of_every_kind_change_nothing_but_their_senders_part(besieged) -> None:
    """A kind in each round, then an old answer and one in another site's name; the sums are those of the other two."""
    kinds = [*HOSTILE, "replay", "not its name"]
    assert len(kinds) > 32
    rounds = {str(place): kind for place, kind in enumerate(kinds, 2)}
    besieged.set(FEDAVG, {"rounds": len(kinds) + 1}, minimum=2, deadline=60.0)
    besieged.lie(rounds=rounds)
    besieged.begin("north")
    assert besieged.ended() == ""
    told = re.findall(r"site 'north' refused: .*", besieged.log)
    assert len(told) == len(kinds) == besieged.refused["north"]
    assert set(besieged.refused) == {"north"}
    rows = site_settings(besieged.folder / "north").site().federation
    assert isinstance(rows, SiteTable)
    said = [HOSTILE[kind][1].replace("{rows:g}", str(rows.training_rows)) for kind in HOSTILE]
    for kind, line, words in zip(kinds, told, [*said, "a replayed message", "it answers as site 'south'"], strict=True):
        assert re.search(words, line), (kind, line)
    assert not re.search(r"^2026-01-01", besieged.log, re.MULTILINE)
    besieged.assert_equal([SITES, *[SITES[1:]] * len(kinds)])


@pytest.mark.deploy
def test_facts_that_would_break_everybodys_model_or_stepsize_are_refused_and_the_server_outlives_them(besieged) -> None:
    besieged.begin("north")
    for place, kind in enumerate(["10^6 classes", "2^40 rows", "rows as text"]):
        besieged.set(FEDAVG, {"rounds": 1}, run=f"facts-{place}")
        besieged.lie(facts=kind)
        why = besieged.ended()
        assert re.search(f"site 'north' does not take part: .*{FACTS[kind][1]}", why), why
    scaffnew = {"name": "scaffnew", "p": 0.5, "batch": "full"}
    for place, (largest, said) in enumerate([(1e300, "a number from 0 to 1e.12"), (1e11, "1e.06 times the others'")]):
        besieged.set(scaffnew, {"rounds": 1}, run=f"constants-{place}")
        besieged.lie(constants=[largest, 0.0, 1.0])
        why = besieged.ended()
        assert re.search(f"site 'north' .*{said}", why), why
    besieged.lie()
    besieged.set(scaffnew, {"rounds": 2}, run="honest")
    assert besieged.ended() == ""
    besieged.assert_equal()


@pytest.mark.deploy
def test_words_added_under_a_mask_and_wrong_shares_do_not_get_into_a_sum(besieged) -> None:
    """A sum that its uploads cannot have is refused: the run stops with the state before, and goes on from it."""
    besieged.set(FEDAVG, {"rounds": 3}, secure=True, patience=2, deadline=60.0)
    besieged.lie(rounds={"2": "masked words + 2^61"})
    besieged.begin("north")
    assert "round 2: 0 of 3 sites answered" in besieged.ended()
    assert "the sum is beyond what its uploads can add up to" in besieged.log
    assert besieged.rounds() == 1
    besieged.lie(share="south")
    assert besieged.ended() == ""
    assert "site 'north' refused: round 2: a share that it was given to keep is not the one" in besieged.log
    besieged.assert_equal()


@pytest.mark.deploy
def test_a_state_that_is_not_finite_is_never_kept_and_a_bad_round_can_be_undone(besieged) -> None:
    besieged.set(STATEFUL, {"rounds": 4}, outlier=float("inf"))
    for site in SITES:
        besieged.lie(site, rounds={"3": "1.5e308"})
    besieged.begin(*SITES)
    assert "round 3: the server's state would not be finite, so that of round 2 is kept" in besieged.ended()
    for site in SITES:
        besieged.lie(site, rounds={"4": 50.0} if site == "north" else {})
    assert besieged.ended() == ""
    with pytest.raises(AssertionError):
        besieged.assert_equal()
    besieged.lie()
    besieged.command("run", str(besieged.server), "--back")
    besieged.assert_equal()


@pytest.mark.deploy
def test_a_site_that_hangs_delays_a_round_by_the_deadline_and_no_more(besieged) -> None:
    besieged.set(FEDAVG, {"rounds": 4}, minimum=2, deadline=20.0)
    besieged.lie(rounds={"2": "hang"})
    besieged.begin("north")
    request = besieged.link.submit()
    besieged.wait(lambda: besieged.rounds() >= 2)
    assert besieged.link.progress()[1]["sites"] == SITES[1:]
    besieged.children["north"].kill()
    besieged.lie()
    besieged.start_liar("north")
    besieged.wait(lambda: besieged.link.ended(request) is not None)
    assert besieged.link.ended(request) == ""
    besieged.assert_equal([line["sites"] for line in besieged.link.progress()])


@pytest.mark.deploy
def test_two_processes_of_one_site_do_not_share_its_folder(besieged) -> None:
    besieged.start("south")
    besieged.wait(lambda: "training rows" in besieged.children["south"].log.read_text())
    second = subprocess.run(
        [POLYFED, "deploy", "site", str(besieged.folder / "south")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert second.returncode == 2
    assert "another process is at work in this folder" in second.stderr.replace("\n", " ")
    assert besieged.children["south"].running


@pytest.mark.deploy
def test_a_rule_for_single_uploads_withstands_a_lying_process_as_it_does_in_simulation(tmp_path) -> None:
    sites = ["north", "south", "west", "east", "centre"]
    live = Besieged(tmp_path / "project", sites)
    method = {**FEDAVG, "weighting": "uniform"}
    live.set(method, {"rounds": 4}, outlier=1e6)
    sections = (live.server / "server.toml").read_text()
    (live.server / "server.toml").write_text(f'{sections}\n[aggregate]\nrule = "median"\n')
    live.lie("north", **{"every round": -10.0})
    try:
        live.begin("north")
        assert live.ended() == ""
    finally:
        live.stop()
    found = read_published(live.link.run_folder).server
    attack = pf.Attack("sign_flip", clients=("north",), strength=10.0)
    close(found, live.simulated(aggregate=pf.Aggregate("median"), attack=attack).server)
    lost = live.simulated(attack=attack).server
    assert np.abs(np.asarray(lost.params["w"]) - np.asarray(found.params["w"])).max() > 0.1


@pytest.mark.deploy
def test_masked_sums_of_two_rosters_cannot_be_subtracted_across_real_processes(besieged) -> None:
    """The server asks for the same uploads without one site, under another run's name, and then its terms again."""
    besieged.set(FEDAVG, {"rounds": 1}, secure=True, patience=1, deadline=60.0)
    besieged.begin()
    assert besieged.ended() == ""
    besieged.set(FEDAVG, {"rounds": 1}, secure=True, run="again", sites=SITES[:2], deadline=5.0)
    assert "0 of 2 sites answered" in besieged.ended()
    assert "the terms are not those that its operator accepted" in besieged.log
    for site in SITES[:2]:
        assert "roster" in besieged.command("accept", str(besieged.folder / site), "--yes")
    assert "0 of 2 sites answered" in besieged.ended()
    assert "round 1 was summed up before, with north, south, west" in besieged.log


@pytest.mark.deploy
def test_keys_that_others_can_read_are_refused(besieged) -> None:
    for path, start in (
        (besieged.folder / "north" / "north.key", lambda: besieged.start("north")),
        (besieged.server / "certificates" / "server.key", lambda: besieged.start("server")),
    ):
        path.chmod(0o644)
        child = start()
        assert child.wait(60) == 2
        assert "others can read this private key" in child.log.read_text().replace("\n", " ")
        path.chmod(0o600)
    (besieged.server / "certificates" / "ca.key").chmod(0o640)
    with pytest.raises(PolyfedError, match="others can read"):
        _ = besieged.link
