"""Sends every message back as it came."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def answer(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)
