"""A site's state on its disk: whole, or an earlier one, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyfed as pf
from polyfed.deploy.site.state_file import SavedState, StateFile
from tests.deploy.expected import simulated
from tests.deploy.loopback import Loopback

METHOD = {"name": "apfl", "batch": 8, "local_steps": 3}


def a_state(value: float) -> dict[str, np.ndarray]:
    return {"v": np.full((3, 2), value), "alpha": np.array(value)}


def flipped(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_no_bit_of_a_state_can_flip_unnoticed(tmp_path) -> None:
    """A state with a bit that flipped is refused, and that after the round which the server counted is used instead."""
    file = StateFile(tmp_path, "study", a_state(0.0), a_state(0.0))
    file.write(SavedState(a_state(1.0), 3))
    file.keep_before(3)
    file.write(SavedState(a_state(2.0), 4, a_state(3.0), 5))
    good = file.path.read_bytes()
    draw = np.random.default_rng(7)
    for bit in draw.choice(8 * len(good), 400, replace=False):
        flipped(file.path, int(bit))
        with pytest.raises(pf.PolyfedError, match=r"state.safetensors: .*; `polyfed deploy run --back-to 4`"):
            file.read(4)
        back = file.read(3)
        assert back is not None
        assert back.counted == 3
        np.testing.assert_array_equal(back.state["v"], a_state(1.0)["v"])
        file.path.write_bytes(good)


def test_a_damaged_state_goes_into_no_sum_and_the_run_can_go_back_to_one_that_is_whole(three, loopback, caplog) -> None:
    grid: Loopback = loopback()

    def die(_site: str, round: int, reply: Any) -> Any:
        if round == 3:
            raise KeyboardInterrupt
        return reply

    grid.change = die
    with pytest.raises(KeyboardInterrupt):
        grid.serve(METHOD)
    grid.change = None
    path = grid.folder / "site-1" / "state" / "study" / "state.safetensors"
    flipped(path, 8 * path.stat().st_size - 3)
    grid.restart("site-1")
    with pytest.raises(pf.PolyfedError, match="2 of 3 sites answered"):
        grid.serve(METHOD, minimum=3, patience=1)
    assert "site 'site-1' refused" in caplog.text
    assert "state.safetensors: this state is not as it was written; `polyfed deploy run --back-to 1`" in caplog.text
    grid.serve(METHOD, back=1)
    grid.assert_equal(simulated(three, METHOD))
