"""The ClientApp. It imports little, as Flower starts a process for each message: the site's own one does the work."""

from __future__ import annotations

import os
from multiprocessing.connection import Client

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .local import ADDRESS, SECRET, packed, unpacked

app = ClientApp()


@app.query()
@app.train()
@app.evaluate()
def answer(message: Message, context: Context) -> Message:
    """The answer of the site's own process."""
    return Message(_ask_site(message.metadata.message_type, message.content), reply_to=message)


def _ask_site(kind: str, content: RecordDict) -> RecordDict:
    with Client(os.environ[ADDRESS], authkey=bytes.fromhex(os.environ[SECRET])) as site:
        site.send_bytes(packed(kind, content))
        return unpacked(site.recv_bytes())[1]
