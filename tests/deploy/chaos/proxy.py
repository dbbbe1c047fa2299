"""A way to the server on loopback that can be cut, held up, slowed down, read and changed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

CHUNK = 65536


class Proxy:
    """Forwards connections on a port of 127.0.0.1 to another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay = 0.0
        """seconds that every piece waits"""
        self.change: Callable[[bytes], bytes] = bytes
        """what becomes of a piece on its way"""
        self._open = threading.Event()
        self._open.set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop every connection there is; new ones are let through."""
        with self._lock:
            dropped, self._sockets = self._sockets, set()
        for end in dropped:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def hold(self) -> None:
        """Let nothing through; connections stay."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._ended = True
        self.release()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        with self._lock:
            self._sockets |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(CHUNK):
                self._open.wait()
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(self.change(piece))
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        with self._lock:
            self._sockets -= {source, sink}
