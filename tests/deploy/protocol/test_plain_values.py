"""The plain values of a message are checked when they are read."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, RecordDict

from polyfed.deploy.protocol.plain_values import (
    Refused,
    plain_values,
    real_number,
    refuse_incomplete,
    whole_number,
)

VALUES = plain_values(RecordDict({"about": ConfigRecord({"round": 3, "weight": 0.5, "site": "north"})}))


def test_numbers_are_read_as_numbers() -> None:
    assert whole_number(VALUES, "round") == 3
    assert real_number(VALUES, "weight") == 0.5
    assert real_number(VALUES, "round") == 3.0


def test_a_value_that_is_no_number_or_is_missing_is_refused_by_name() -> None:
    with pytest.raises(Refused, match=r"round must be a whole number, found None"):
        whole_number(plain_values(RecordDict()), "round")
    with pytest.raises(Refused, match=r"weight must be a whole number, found 0.5"):
        whole_number(VALUES, "weight")
    with pytest.raises(Refused, match=r"site must be a number, found 'north'"):
        real_number(VALUES, "site")
    with pytest.raises(Refused, match=r"the answer lacks run, good"):
        refuse_incomplete(VALUES, "site", "run", "good")
