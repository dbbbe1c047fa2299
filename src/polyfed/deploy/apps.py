"""Flower's two apps: the server's runs a plan over its grid, a site's hands every message to the site."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from polyfed.deploy.site import Site


def client_app(site: Site) -> ClientApp:
    """A site as a ClientApp."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        return Message(site.answer(message), reply_to=message)

    for register in (app.query(), app.train(), app.evaluate()):
        register(answer)
    return app
