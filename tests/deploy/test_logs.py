"""Log files: bounded, and without colour codes."""

from __future__ import annotations

import logging
import subprocess
import sys

from polyfed.deploy.logs import KEPT, put_aside, site_log

CHILD = """
import logging, sys
from pathlib import Path
import flwr.app
import polyfed.deploy.logs as logs
logs.LARGEST = 400
logs.OutputHandler.__init__.__defaults__ = (400,)
logs.log_to_output(Path(sys.argv[1]))
for number in range(80):
    logging.getLogger("polyfed").info("round %d of 80", number)
logging.getLogger("flwr").warning("a warning of Flower")
logging.getLogger("flwr").info("a reply came")
print("a line of another program", flush=True)
"""


def test_a_servers_output_is_put_aside_when_it_is_long_and_has_no_colours(tmp_path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab") as file:
        subprocess.run([sys.executable, "-c", CHILD, str(path)], stdout=file, check=True, timeout=100)
    whole = "".join(part.read_text() for part in tmp_path.iterdir())
    assert "\x1b" not in whole
    assert "WARNING a warning of Flower" in whole
    assert "a reply came" not in whole
    assert path.read_text().endswith("a line of another program\n")
    assert "INFO round 79 of 80" in whole
    assert "\0" not in whole  # what comes after it was emptied begins at its beginning
    assert len(list(tmp_path.iterdir())) == KEPT + 1
    assert all(part.stat().st_size < 600 for part in tmp_path.iterdir())


def test_the_newest_that_was_put_aside_is_the_first(tmp_path) -> None:
    path = tmp_path / "x.log"
    for number in range(KEPT + 2):
        path.write_text(str(number))
        put_aside(path)
    assert [(tmp_path / f"x.log.{n}").read_text() for n in range(1, KEPT + 1)] == ["6", "5", "4", "3", "2"]
    assert path.read_text() == ""


def test_a_site_has_a_log_of_its_own(tmp_path) -> None:
    handler = site_log(tmp_path)
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "connected to %s", ("here",), None))
    handler.close()
    assert (tmp_path / "logs" / "site.log").read_text().endswith(" INFO connected to here\n")


def test_what_a_sender_wrote_forges_no_line_and_speaks_to_no_terminal_in_a_traceback_either(tmp_path) -> None:
    forged = "2026-01-01 00:00:00,000 INFO round 9 of 9"
    words = f"x\n{forged}\x1b[2J\r{forged}\x9b1m\u2028{forged}"
    handler = site_log(tmp_path)
    try:
        raise ValueError(words)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "said: %s", (words,), sys.exc_info())
    logging.Formatter().format(record)  # another handler was first: its text of the traceback is kept in the record
    handler.emit(record)
    handler.close()
    text = (tmp_path / "logs" / "site.log").read_text()
    assert text.count(forged) == 6
    assert [line for line in text.splitlines() if not line.startswith("    ")] == [text.splitlines()[0]]
    assert all(letter.isprintable() or letter == "\n" for letter in text)
