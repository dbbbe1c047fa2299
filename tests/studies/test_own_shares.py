"""shares.csv: a line per evaluated round at which the shares moved, also after a stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyfed as pf
from polyfed.studies.config import make_config
from polyfed.studies.experiment import Options, run
from polyfed.studies.own_shares import ShareLog, read_shares
from polyfed.studies.run_directory import read_run

SECTIONS = {
    "data": {"source": "synthetic", "clients": 5, "sizes": 30},
    "algorithm": {"name": "apfl", "lr": 0.05, "local_steps": 3, "batch": 8},
    "run": {"rounds": 8, "eval_every": 2, "checkpoint_every": 2, "alone": False, "finetune_steps": 0},
}


def sections(**algorithm) -> dict:
    return SECTIONS | {"algorithm": SECTIONS["algorithm"] | algorithm}


def quiet(**options) -> Options:
    return Options(say=lambda text: None, **options)


@pytest.mark.full
def test_a_run_keeps_the_learned_weight_of_every_client_at_every_evaluated_round(tmp_path: Path) -> None:
    config = make_config(sections())
    (record,) = run(config, tmp_path, quiet())
    shares = record.shares
    assert shares is not None
    assert shares.clients == config.problem.federation.clients
    assert shares.rounds == (0, 2, 4, 6, 8)
    assert (shares.values[0] == 0).all()  # nobody has taken part yet
    for rounds, row in ((2, 1), (8, 4)):
        result = pf.simulate(config.problem, config.methods[0].algorithm, rounds=rounds)
        np.testing.assert_allclose(shares.values[row], result.client_state.alpha, atol=1e-5)
    assert np.ptp(shares.values[-1]) > 1e-4


@pytest.mark.full
def test_shares_that_never_move_leave_no_file(tmp_path: Path) -> None:
    (fixed,) = run(make_config(sections(adaptive="off")), tmp_path / "off", quiet())
    other = {**SECTIONS, "algorithm": {"name": "fedavg", "lr": 0.05}}
    (none,) = run(make_config(other), tmp_path / "none", quiet())
    begins = {**SECTIONS, "algorithm": {"name": "ditto", "lr": 0.05}}  # 0 before round 1, and 1 from then on
    (own,) = run(make_config(begins), tmp_path / "own", quiet())
    assert fixed.shares is none.shares is own.shares is None
    assert {row["own_share"] for row in own.clients} == {1.0}
    assert not list(tmp_path.rglob("shares.csv"))


@pytest.mark.full
def test_a_stopped_run_goes_on_to_the_same_file(tmp_path: Path) -> None:
    def stop(label, rounds, simulation, row) -> None:
        if simulation.round == 6:  # after its line, before its checkpoint
            raise KeyboardInterrupt

    run(make_config(sections()), tmp_path / "whole", quiet())
    with pytest.raises(KeyboardInterrupt):
        run(make_config(sections()), tmp_path / "cut", quiet(progress=stop))
    shares = read_shares(tmp_path / "cut")
    assert shares is not None
    assert shares.rounds == (0, 2, 4, 6)
    log = (tmp_path / "cut/shares.csv").read_text()
    (tmp_path / "cut/shares.csv").write_text(log + "8,0.1,0.2")  # cut off by a crash
    run(make_config(sections()), tmp_path / "cut", quiet(resume=True))
    assert (tmp_path / "cut/shares.csv").read_text() == (tmp_path / "whole/shares.csv").read_text()
    shares = read_run(tmp_path / "cut").shares
    assert shares is not None
    assert shares.rounds == (0, 2, 4, 6, 8)
    run(make_config(sections(adaptive="off")), tmp_path / "cut", quiet(overwrite=True))
    assert not (tmp_path / "cut/shares.csv").exists()


def test_a_round_without_a_line_has_the_shares_of_the_line_before(tmp_path: Path) -> None:
    log = ShareLog(tmp_path, ["a, b", "c"])
    for number, values in ((0, [0.5, 0.5]), (1, [0.5, 0.5]), (2, [0.25, 0.5]), (3, [0.25, 0.5])):
        log.write(number, np.array(values))
    log.finish()
    shares = read_shares(tmp_path)
    assert (tmp_path / "shares.csv").read_text() == 'round,"a, b",c\n0,0.5,0.5\n2,0.25,0.5\n'
    assert shares is not None
    np.testing.assert_array_equal(shares.at([0, 1, 2, 3]), [[0.5, 0.5], [0.5, 0.5], [0.25, 0.5], [0.25, 0.5]])
