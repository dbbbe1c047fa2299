"""The site's own process: it holds the rows, the compiled programs and the state, and answers a message at a time."""

from __future__ import annotations

import logging
import secrets
import threading
from multiprocessing.connection import Connection, Listener

from polyfed.deploy.app.polyfed_app.local import ADDRESS, SECRET, packed, unpacked
from polyfed.deploy.site.site import Site

log = logging.getLogger("polyfed")


class SiteProcess:
    """Listens to the processes that Flower starts on this machine; `environment` tells them how to reach it."""

    def __init__(self, site: Site) -> None:
        secret = secrets.token_bytes(32)
        self.site, self._listener = site, Listener(authkey=secret)
        self.environment = {ADDRESS: str(self._listener.address), SECRET: secret.hex()}
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as caller:
                    self._answer(caller)
            except (EOFError, ConnectionError) as error:  # a caller that was killed takes nobody with it
                log.warning("site '%s': a message was cut off: %s", self.site.name, error)
            except OSError:
                return  # closed
            except Exception:
                log.exception("site '%s': a message failed", self.site.name)

    def _answer(self, caller: Connection) -> None:
        kind, content = unpacked(caller.recv_bytes())
        caller.send_bytes(packed(kind, self.site.answer(kind, content)))
