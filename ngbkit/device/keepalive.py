"""The keepalive connection of an engine on another machine: it ends the engine when its client is gone.

The client's side of the tunnel listens on a port of its own and sends a token as its greeting; the engine keeps one
connection to it. A message on it ends the engine at once. If the connection is lost, the client may be rebuilding the
tunnel; if the tunnel does not return in time, the engine ends as well. Its measurements until then are in the journal.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# The client sends a beat this often, so that the engine notices a link that fails silently.
BEAT_S = 10.0
SILENT_S = 65.0
# A client that has lost its tunnel tries for less than this to rebuild it.
GRACE_S = 150.0
GREET_S = 5.0
BEAT, GOODBYE = b"\n", b"bye\n"
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """The address on which the client listens, as seen from the engine, and its greeting."""

    host: str
    port: int
    # In hex digits: a listener with another greeting is not this client.
    token: str

    def connect(self) -> socket.socket | None:
        """Connect to the client; None if it does not answer."""
        with contextlib.suppress(OSError):
            connection = socket.create_connection((self.host, self.port), timeout=GREET_S)
            if _read_line(connection) == self.token.encode():
                return connection
            connection.close()
        return None

    def is_answered(self) -> bool:
        """Whether the client answers."""
        connection = self.connect()
        if connection is None:
            return False
        connection.close()
        return True

    def follow(self, end: Callable[[], None]) -> None:
        """Call `end` on a thread of its own after the client's goodbye, or when it has been gone too long."""
        threading.Thread(target=self._follow, args=(end,), name="ngbkit-keepalive", daemon=True).start()

    def _follow(self, end: Callable[[], None]) -> None:
        lost_at = time.monotonic()
        while time.monotonic() - lost_at < GRACE_S:
            connection = self.connect()
            if connection is not None:
                with connection:
                    if _wait_for_goodbye(connection):
                        break
                lost_at = time.monotonic()
            time.sleep(_RETRY_S)
        end()


def _wait_for_goodbye(connection: socket.socket) -> bool:
    """Wait until a connection ends; return whether it ended with a goodbye."""
    connection.settimeout(SILENT_S)
    with contextlib.suppress(OSError):
        while data := connection.recv(64):
            if data.strip():
                return True
    return False


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < 128:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.strip()
