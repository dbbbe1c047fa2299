"""Shakespeare's plays in Bosak's XML, by speaking role: predict the next character of what a role says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from polyfed.core.errors import PolyfedError
from polyfed.data.federation import Federation
from polyfed.data.option_checks import PathLike, choice, existing_path, fractions, integer
from polyfed.data.sources.cache import parsed
from polyfed.data.sources.characters import ALPHABET, foreign_note, plain, tokens
from polyfed.data.sources.published import data_folder
from polyfed.data.sources.rows import federation_of_rows, natural_clients, split_in_order

STRIDE = 10
LARGEST = 2**30
"""The most characters that are laid out: 4 GiB of token ids."""


def shakespeare(
    path: PathLike | None = None,
    clients: int | None = None,
    min_rows: int = 10,
    length: int = 80,
    stride: int | None = None,
    predict: str = "next",
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Federation:
    """The speaking roles of the plays, as clients "play/ROLE"; a row is `length` characters, its label the next one.

    A row begins every `stride` characters (by default 10; LEAF takes every one). A role's first rows are for training
    and its last ones for test: no character that a test row asks for is in any training row. With predict = "all" the
    target of a row is the whole text moved on by one character, an array of `length` labels.
    """
    integer("length", length, 1)
    choice("predict", predict, ("next", "all"))
    stride = (STRIDE if predict == "next" else length) if stride is None else integer("stride", stride, 1)
    if predict == "all" and stride < length:
        raise PolyfedError(f"with predict = 'all' stride must be at least length = {length}, found {stride}")
    fractions(validation, test)
    integer("seed", seed)
    folder = data_folder() / "shakespeare" if path is None else existing_path("path", path)
    codes, starts, roles, foreign = parsed(read_roles, play_files(folder))
    spans = {name: (int(low), int(high)) for name, low, high in zip(roles, starts[:-1], starts[1:], strict=True)}
    # The last character of a row's text is its label, so a text of n characters has the starts 0 .. n - length - 1.
    begins = {name: np.arange(low, high - length, stride) for name, (low, high) in spans.items()}
    sizes = {name: len(rows) for name, rows in begins.items()}
    least = max(integer("min_rows", min_rows, 1), 2 if test > 0 else 1)
    names = natural_clients(sizes, clients, least, seed, where=str(folder), what="roles")
    x, y, rows = _windows(codes, [begins[name] for name in names], length, predict)
    given: dict[str, object] = {} if path is None else {"path": str(path)}
    given |= {"clients": clients, "min_rows": min_rows, "length": length, "stride": stride, "predict": predict}
    given |= {"validation": validation, "test": test, "seed": seed}
    if foreign:
        given["note"] = foreign_note(foreign)
    return federation_of_rows(
        x,
        y,
        names,
        split_in_order(names, rows, validation, test),
        classes=len(ALPHABET),
        label_names=tuple(ALPHABET),
        columns={"characters": np.asarray([spans[name][1] - spans[name][0] for name in names], np.int64)},
        source={"name": "shakespeare", **given},
    )


def play_files(folder: Path) -> list[Path]:
    """The XML files of a folder, in the order of their names."""
    files = sorted(folder.glob("*.xml")) if folder.is_dir() else []
    if not files:
        raise PolyfedError(
            f"{folder}: no plays there, expected XML files such as hamlet.xml; `polyfed data fetch shakespeare` gets "
            "them, or set POLYFED_DATA to the folder that holds shakespeare/"
        )
    return files


def read_roles(files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], int]:
    """(token ids of all roles, where each role begins and the end, names, characters outside the alphabet)."""
    texts: dict[str, list[str]] = {}
    for file in files:
        for speakers, speech in speeches(file):
            for speaker in speakers:
                texts.setdefault(f"{file.stem}/{speaker}", []).append(speech)
    joined = ["\n".join(said) for said in texts.values()]
    codes, foreign = tokens("".join(joined))
    starts = np.concatenate([[0], np.cumsum([len(text) for text in joined])]).astype(np.int64)
    return codes, starts, tuple(texts), foreign


def speeches(file: Path) -> list[tuple[list[str], str]]:
    """(speakers, what they say) of every speech of a play, white space squeezed; several may speak at once."""
    try:
        play = ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        raise PolyfedError(f"{file}: not well-formed XML ({error})") from None
    except OSError as error:
        raise PolyfedError(f"{file}: cannot be read ({error.strerror})") from None
    spoken = []
    for speech in play.iter("SPEECH"):
        speakers = dict.fromkeys(" ".join("".join(s.itertext()).split()) for s in speech.iter("SPEAKER"))
        lines = [" ".join("".join(line.itertext()).split()) for line in speech.iter("LINE")]
        said = plain("\n".join(line for line in lines if line))
        if said:
            spoken.append(([name for name in speakers if name], said))
    if play.tag != "PLAY" or not any(names for names, _ in spoken):
        raise PolyfedError(f"{file}: <{play.tag}> without speeches, expected a <PLAY> with SPEECH, SPEAKER and LINE")
    return spoken


def _windows(
    codes: np.ndarray, begins: list[np.ndarray], length: int, predict: str
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """(x, y, rows of each client)."""
    starts = np.concatenate(begins)
    if len(starts) * length > LARGEST:
        raise PolyfedError(
            f"{len(starts):,} rows of {length} characters are too many; take a larger stride or fewer clients"
        )
    views = np.lib.stride_tricks.sliding_window_view(codes, length + 1)
    rows = np.split(np.arange(len(starts)), np.cumsum([len(b) for b in begins])[:-1])
    x, y = views[starts, :length], views[starts, 1:] if predict == "all" else views[starts, length]
    return x, y, rows
