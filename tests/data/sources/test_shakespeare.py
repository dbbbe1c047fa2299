"""Shakespeare by speaking role: a small play by hand, and the published ones against an independent extraction."""

from __future__ import annotations

import json
import lzma

import jax.numpy as jnp
import numpy as np
import pytest

import polyfed as pf
import polyfed.data as data
from polyfed.core.errors import PolyfedError
from polyfed.data.sources.characters import ALPHABET, plain, text_of, tokens
from polyfed.data.sources.shakespeare import speeches
from tests.data.conftest import SHARED

SPEECH = "<SPEECH><SPEAKER>{}</SPEAKER>{}</SPEECH>"
PARTS = ("train", "validation", "test")


def play(*said: tuple[str, str]) -> str:
    body = "".join(
        SPEECH.format(who, "".join(f"<LINE>{line}</LINE>" for line in text.split("/"))) for who, text in said
    )
    return f'<?xml version="1.0"?><!DOCTYPE PLAY SYSTEM "play.dtd"><PLAY><ACT><SCENE>{body}</SCENE></ACT></PLAY>'


@pytest.fixture
def plays(tmp_path):
    long = "/".join(f"line {i} of a long speech, sir" for i in range(40))
    (tmp_path / "one.xml").write_text(play(("ANNE", long), ("BOB", "Aye."), ("ANNE", "So be it.")))
    (tmp_path / "two.xml").write_text(play(("ANNE", long.upper())))
    return tmp_path


def test_the_alphabet_is_leafs():
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert ALPHABET[:3] == "\n !"
    assert ALPHABET[-3:] == "yz}"
    assert (
        text_of(tokens("Not so, my lord;\nI am too much 'i the sun.")[0])
        == "Not so, my lord;\nI am too much 'i the sun."
    )


def test_other_characters_become_plain_ones_or_spaces_that_are_counted():
    assert plain("‘Æneas’—“naïve”") == "'Æneas'-\"naive\""
    codes, odd = tokens("a$b\u2603?")
    assert (text_of(codes), odd) == ("a b ?", 2)
    assert codes.dtype == np.int32


def test_rows_are_the_characters_before_a_label_in_the_order_of_the_play(plays):
    federation = data.load("shakespeare", path=plays, length=20, stride=7, min_rows=2)
    assert federation.clients == ("one/ANNE", "two/ANNE")
    said = "\n".join([*(f"line {i} of a long speech, sir" for i in range(40)), "So be it."])
    starts = range(0, len(said) - 20, 7)
    rows = [federation.split(part).of(0) for part in PARTS]
    x, y = (np.concatenate([pair[i] for pair in rows]) for i in (0, 1))
    assert [text_of(row) for row in x] == [said[s : s + 20] for s in starts]
    assert text_of(y) == "".join(said[s + 20] for s in starts)
    assert federation.columns["characters"][0] == len(said)
    assert federation.train.x.dtype == federation.train.y.dtype == np.int32
    assert (federation.classes, federation.feature_shape) == (80, (20,))
    assert federation.train.x.ctypes.data % 64 == 0


@pytest.mark.parametrize("stride", [1, 10, 90])
def test_no_label_of_a_held_out_row_is_in_a_training_row(tmp_path, stride):
    file, size, options = tmp_path / "p.xml", 5000, {"stride": stride, "validation": 0.1, "test": 0.2}
    file.write_text(play(("A", "a" * size)))
    training = data.load("shakespeare", path=tmp_path, **options).train.sizes[0]
    first = training * stride + 80  # the label of the first row that is held out; all from here on becomes Z
    file.write_text(play(("A", "a" * first + "Z" * (size - first))))
    federation = data.load("shakespeare", path=tmp_path, **options)
    assert set(text_of(federation.train.x)) == set(text_of(federation.train.y)) == {"a"}
    assert set(text_of(federation.validation.y)) == set(text_of(federation.test.y)) == {"Z"}


def test_all_positions_can_be_predicted(plays):
    federation = data.load("shakespeare", path=plays, length=20, predict="all", min_rows=2)
    assert federation.train.y.shape == federation.train.x.shape
    np.testing.assert_array_equal(federation.train.y[:, :-1], federation.train.x[:, 1:])
    assert federation.source["stride"] == 20
    with pytest.raises(PolyfedError, match="stride must be at least length = 20, found 5"):
        data.load("shakespeare", path=plays, length=20, predict="all", stride=5)


def test_token_ids_reach_a_model_as_whole_numbers(plays):
    """The loss of a table that gives each last character the logits of the next one, against NumPy."""
    federation = data.load("shakespeare", path=plays, length=20, min_rows=2)
    table = np.random.default_rng(0).normal(size=(80, 80)).astype(np.float32)
    problem = pf.Problem(federation, (lambda key: jnp.zeros((80, 80)), lambda params, x: params[x[:, -1]]), "softmax")
    x, y = federation.train.of(0)
    logits = table[x[:, -1]].astype(np.float64)
    expected = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y])
    assert problem.value(table, "one/ANNE") == pytest.approx(expected, rel=1e-5)


def test_a_speech_of_several_speakers_is_everybodys_and_space_is_squeezed(tmp_path):
    who = "<SPEAKER>A</SPEAKER>\n<SPEAKER> B  C </SPEAKER>"
    what = "<LINE>  Well  <STAGEDIR>(aside)</STAGEDIR> met.</LINE><LINE/>"
    (tmp_path / "p.xml").write_text(f"<PLAY><SPEECH>{who}{what}</SPEECH></PLAY>")
    assert speeches(tmp_path / "p.xml") == [(["A", "B C"], "Well (aside) met.")]


def test_wrong_plays_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYFED_DATA", str(tmp_path))
    with pytest.raises(PolyfedError, match=r"shakespeare: no plays there.*`polyfed data fetch shakespeare`"):
        data.load("shakespeare")
    file = tmp_path / "shakespeare" / "hamlet.xml"
    file.parent.mkdir()
    file.write_text(play(("HAMLET", "To be"))[:-20])
    with pytest.raises(PolyfedError, match=r"hamlet.xml: not well-formed XML \(.*line 1"):
        data.load("shakespeare")
    file.write_text("<html><body>Not found</body></html>")
    with pytest.raises(PolyfedError, match=r"hamlet.xml: <html> without speeches, expected a <PLAY>"):
        data.load("shakespeare")
    file.write_text(play(("HAMLET", "To be")))
    with pytest.raises(PolyfedError, match="none of its 1 roles has 10 rows"):
        data.load("shakespeare")
    for options, message in (
        ({"stride": 0}, "stride must be a whole number of at least 1"),
        ({"length": "80"}, "length must be a whole number"),
        ({"predict": "nxt"}, "did you mean 'next'"),
        ({"min_rows": 0}, "min_rows must be"),
        ({"clients": 2.5}, "clients must be a whole number"),
    ):
        with pytest.raises(PolyfedError, match=message):
            data.load("shakespeare", **{"min_rows": 1, "length": 2, "test": 0, **options})


@pytest.mark.realdata
def test_the_published_plays_have_their_known_roles_and_words(published, monkeypatch):
    folder = published("shakespeare")
    monkeypatch.setenv("POLYFED_DATA", str(folder))
    known = json.loads(lzma.decompress((SHARED / "shakespeare" / "shakespeare_by_role.json.xz").read_bytes()))["roles"]
    spoken: dict[str, list[str]] = {}
    for file in sorted((folder / "shakespeare").glob("*.xml")):
        for speakers, said in speeches(file):
            for speaker in speakers:
                spoken.setdefault(f"{file.stem}/{speaker}", []).append(said)
    assert spoken == known
    federation = data.load("shakespeare")
    expected = {name: len(range(0, len("\n".join(said)) - 80, 10)) for name, said in known.items()}
    rows = np.sum([federation.split(part).sizes for part in PARTS], axis=0)
    assert dict(zip(federation.clients, rows.tolist(), strict=True)) == {n: c for n, c in expected.items() if c >= 10}
    assert federation.source["note"] == "1 character outside the alphabet read as spaces"
    assert len(data.load("shakespeare", clients=138, stride=1)) == 138
