"""The ClientApp. It imports little: Flower starts a process for each message, and the site's own has all at hand."""

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
    """What the site answers."""
    return Message(_asked(message.metadata.message_type, message.content), reply_to=message)


def _asked(kind: str, content: RecordDict) -> RecordDict:
    with Client(os.environ[ADDRESS], authkey=bytes.fromhex(os.environ[SECRET])) as site:
        site.send_bytes(packed(kind, content))
        return unpacked(site.recv_bytes())[1]
