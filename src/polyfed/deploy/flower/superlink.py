"""Flower's SuperLink, which also logs the connections that TLS turns away; started with `python -m`."""

from __future__ import annotations

import logging
import ssl
import sys

log = logging.getLogger("polyfed")
PLAIN = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's words for a connection that does not begin with TLS."""


class Logged(ssl.SSLObject):
    """One side of a TLS connection; a handshake that fails is named."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.server_side:
                log.warning("a connection was refused: %s", why(error))
            raise


def why(error: ssl.SSLError) -> str:
    """What was wrong with a connection."""
    reason = str(error.reason or error)
    if reason in PLAIN:
        return f"it does not speak TLS ({reason})"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"it does not trust this server's certificate ({reason})"
    return f"TLS failed ({reason})"


def main() -> None:
    from flwr.superlink.cli.flower_superlink import flower_superlink

    shown = logging.StreamHandler(sys.stdout)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(shown)
    ssl.SSLContext.sslobject_class = Logged
    flower_superlink()


if __name__ == "__main__":
    main()
