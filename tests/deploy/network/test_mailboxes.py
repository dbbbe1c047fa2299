"""The server's store of messages: one answer each, and nothing is kept that nobody waits for."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from polyfed.deploy.network import mailboxes
from polyfed.deploy.network.mailboxes import Mailboxes
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.envelope import Envelope, error_envelope


def content(value: float = 0.0) -> RecordDict:
    record = RecordDict({"about": ConfigRecord({"round": 1})})
    record["upload"] = wire.as_record({"w": np.full(100, value)})
    return record


def answer(value: float) -> bytes:
    return b"".join(Envelope("train", content(value)).parts())


@pytest.fixture
def mail() -> Mailboxes:
    made = Mailboxes(["north", "south"])
    made.connect("north")
    return made


def fetched(mail: Mailboxes) -> str:
    """A message to the site, which fetches it."""
    sent = mail.send("north", "train", content())
    got = mail.next("north")
    assert got is not None
    assert got[0] == sent
    assert mail.next("north") is None
    assert mail.next("south") is None
    return sent


def kept(mail: Mailboxes) -> int:
    return sum(len(box.messages) + len(box.handed) + len(box.answers) for box in mail._boxes.values())


def test_an_answer_is_taken_once_and_nothing_of_it_stays(mail) -> None:
    sent = fetched(mail)
    mail.put("north", sent, answer(3.0))
    [came] = mail.answers([sent])
    np.testing.assert_array_equal(wire.as_arrays(came.content.array_records["upload"])["w"], np.full(100, 3.0))
    assert mail.answers([sent]) == []
    assert kept(mail) == 0


@pytest.mark.parametrize("answered", [True, False])
def test_what_nobody_waits_for_any_more_is_dropped(mail, answered) -> None:
    for end in (mail.forget, lambda _: mail.clear()):
        sent, other = fetched(mail), mail.send("south", "train", content())
        if answered:
            mail.put("north", sent, answer(3.0))
        end([sent, other])
        assert kept(mail) == 0
        with pytest.raises(PermissionError, match="that it does not have"):
            mail.put("north", sent, answer(3.0))


def test_a_message_has_one_answer_and_is_the_sites_to_which_it_was_sent(mail) -> None:
    sent = fetched(mail)
    with pytest.raises(PermissionError, match="that it does not have"):
        mail.put("south", sent, answer(1.0))
    mail.put("north", sent, answer(3.0))
    with pytest.raises(PermissionError, match="a second answer"):
        mail.put("north", sent, answer(4.0))
    [came] = mail.answers([sent])
    assert wire.as_arrays(came.content.array_records["upload"])["w"][0] == 3.0


def test_a_site_that_connects_anew_has_lost_its_messages_and_not_its_answers(mail) -> None:
    before = mail.connected()["north"]
    first = fetched(mail)
    mail.put("north", first, answer(3.0))
    second = fetched(mail)
    session = mail.connect("north")
    assert mail.connected() == {"north": session}
    assert session != before
    assert not mail.heard("north", before)
    with pytest.raises(PermissionError, match="that it does not have"):
        mail.put("north", second, answer(4.0))
    assert [came.asked for came in mail.answers([first, second])] == [first]


def test_a_site_that_is_not_heard_of_counts_as_gone_until_it_is_heard_again(mail, monkeypatch) -> None:
    session = mail.connected()["north"]
    now = mailboxes.time.monotonic()
    monkeypatch.setattr(mailboxes.time, "monotonic", lambda: now + mailboxes.SILENT)
    assert mail.connected() == {}
    assert mail.presence() == {"north": False, "south": False}
    assert not mail.heard("south", "")
    assert mail.heard("north", session)
    assert mail.connected() == {"north": session}
    mail.leave("north")
    assert mail.connected() == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no head"),
        (b"\xff" * 100, "no head"),
        ((10**9).to_bytes(8, "big") + b"{}", "no head"),
        (b"\0" * 8, "cannot be read"),
        ((2).to_bytes(8, "big") + b"[]", "cannot be read"),
        ((2).to_bytes(8, "big") + b"{}", "cannot be read"),
        (answer(1.0) + b"x", "bytes that belong to no array"),
        (answer(1.0)[:-1], "more bytes than there are"),
        (answer(1.0).replace(b"[100]", b'["x"]', 1), "cannot be read"),
        (b"".join(error_envelope("out of memory").parts()), "out of memory"),
    ],
)
def test_bytes_that_are_no_answer_are_an_error_of_the_site(mail, data, said) -> None:
    sent = fetched(mail)
    mail.put("north", sent, data)
    [came] = mail.answers([sent])
    assert said in came.error
    assert not came.content


def test_what_several_sites_are_sent_is_kept_once() -> None:
    """A large model goes to every site; the server's memory holds it once."""
    shared = content()
    [one] = [Envelope("train", RecordDict(dict(shared))).parts()[-1] for _ in range(1)]
    assert one is shared.array_records["upload"]["w"].data
