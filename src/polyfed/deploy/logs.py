"""Logs in files: lines with a time, without colour codes, in as many bytes as are allowed."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from polyfed.deploy.protocol.plain_values import printable

LARGEST = 5_000_000
"""The bytes of a log file above which it is put aside."""
KEPT = 5
"""How many that were put aside are kept: NAME.1 is the newest."""


class OneLine(logging.Formatter):
    """Log lines whose message cannot begin another line, or speak to a terminal, whatever a site wrote."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """With a traceback, whose last words may be a sender's: indented, so that it is not taken for other lines."""
        line, *more = super().format(record).splitlines()
        return "\n".join([line, *(f"    {printable(text)}" for text in more)])


LINE = OneLine("%(asctime)s %(levelname)s %(message)s")


class OutputHandler(logging.StreamHandler):
    """Lines on the standard output. Where that is a file, it is put aside when it is long, also for child processes.

    They all write to its end: it is copied and emptied, not renamed.
    """

    def __init__(self, path: Path, largest: int = LARGEST) -> None:
        super().__init__(sys.stdout)
        self.setFormatter(LINE)
        self._path, self._largest = path, largest

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            if self._path.stat().st_size > self._largest:
                put_aside(self._path)
        except OSError:  # a full disk stops no server
            pass


def put_aside(path: Path) -> None:
    """Copy a file that others append to into NAME.1, the one before into NAME.2 and so on, and empty it."""
    for number in range(KEPT - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


def log_to_output(path: Path) -> None:
    """For a process whose output goes to `path`: our lines and Flower's go there, Flower's only from warnings on."""
    handler = OutputHandler(path)
    logging.getLogger("polyfed").addHandler(handler)
    logging.getLogger("polyfed").setLevel(logging.INFO)
    flower = logging.getLogger("flwr")
    for other in list(flower.handlers):
        flower.removeHandler(other)  # it paints its lines
    flower.addHandler(handler)
    flower.setLevel(logging.WARNING)
    flower.propagate = False


def site_log(folder: Path) -> RotatingFileHandler:
    """The log of a site: logs/site.log in its folder."""
    path = folder / "logs" / "site.log"
    path.parent.mkdir(exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=LARGEST, backupCount=KEPT, encoding="utf-8")
    handler.setFormatter(LINE)
    return handler
