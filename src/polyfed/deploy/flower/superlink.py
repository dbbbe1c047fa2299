"""Flower's SuperLink, with a log of the connections that TLS turns away; started with `python -m`."""

from __future__ import annotations

import logging
import ssl
import sys

log = logging.getLogger("polyfed")
NOT_TLS = ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "HTTPS_PROXY_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE")
"""OpenSSL's words for a connection that does not begin with TLS."""


class LoggedConnection(ssl.SSLObject):
    """One side of a TLS connection, which logs a handshake that fails."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.server_side:
                log.warning("a connection was refused: %s", refusal_reason(error))
            raise


def refusal_reason(error: ssl.SSLError) -> str:
    """What was wrong with a connection."""
    reason = str(error.reason or error)
    if reason in NOT_TLS:
        return f"it does not speak TLS ({reason})"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"it does not trust this server's certificate ({reason})"
    return f"TLS failed ({reason})"


def main() -> None:
    from flwr.superlink.cli.flower_superlink import flower_superlink

    shown = logging.StreamHandler(sys.stdout)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(shown)
    ssl.SSLContext.sslobject_class = LoggedConnection
    flower_superlink()


if __name__ == "__main__":
    main()
