"""A site that lies, as a process of its own: `python -m tests.deploy.hostile_site FOLDER`.

What it does next stands in FOLDER/lie.json, which a test may change at any time: a name from `lies` for all rounds or
for each round by its number, or changed facts, or one of the other ways in `Liar`.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from polyfed.deploy.network.running_site import RunningSite
from polyfed.deploy.protocol import wire
from polyfed.deploy.protocol.messages import Answer
from polyfed.deploy.settings import site_settings
from polyfed.deploy.site.site import Site
from tests.deploy.lies import FACTS, HOSTILE, filled, lied, scaled

HONEST = Site.answer


class Liar:
    """Changes a site's honest answers."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "lie.json"
        self.past: list[RecordDict] = []

    def answer(self, site: Site, kind: str, content: RecordDict) -> RecordDict:
        reply = copy.deepcopy(HONEST(site, kind, content))
        lie: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        number = content.config_records["about"].get("round", -1)
        assert isinstance(number, int)
        if number >= 0:
            self.past.append(copy.deepcopy(reply))
            name = lie.get("rounds", {}).get(str(number + 1), lie.get("every round"))
            if name is not None:
                return self._changed(reply, name)
        about = reply.config_records["about"]
        if "facts" in lie:
            lied(about, FACTS[lie["facts"]][0])
        if "constants" in lie and "smoothness" in str(about.get("facts", "")):
            about["facts"] = json.dumps({"smoothness": lie["constants"]})
        if "share" in lie and "secure" in about and set(json.loads(str(about["secure"]))) == {"seed", "key"}:
            shares = json.loads(str(about["secure"]))
            shares["seed"][lie["share"]] = shares["seed"][site.name]
            about["secure"] = json.dumps(shares)
        return reply

    def _changed(self, reply: RecordDict, name: Any) -> RecordDict:
        if name == "masked words + 2^61":
            words = wire.as_arrays(reply.array_records["masked"])["words"]
            reply["masked"] = wire.as_record({"words": words + np.array(2**61, words.dtype)})
        elif name == "hang":
            time.sleep(10_000)
        elif name == "replay":
            return self.past[0]
        elif name == "not its name":
            reply["about"] = ConfigRecord({**reply.config_records["about"], "site": "south"})
        elif isinstance(name, float):
            return scaled(Answer("", reply), name).content
        elif name == "1.5e308":
            return filled(Answer("", reply), 1.5e308).content
        elif name != "honest":
            return HOSTILE[name][0](Answer("", reply)).content
        return reply


def main(folder: Path) -> None:
    liar = Liar(folder)
    Site.answer = lambda site, kind, content: liar.answer(site, kind, content)  # pyright: ignore[reportAttributeAccessIssue]
    node = RunningSite(site_settings(folder), lambda text: print(text, flush=True))
    while node.running:
        threading.Event().wait(0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
