"""How an engine on another machine knows that its client is still there.

The client's side of the tunnel listens on a port of its own and greets with a token; the engine keeps one connection to
it. A word on it ends the engine at once. Where the connection is gone, the tunnel may be on its way back; where it does
not come back in time, the client is gone, and the engine goes too. What it measured until then is in the journal.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# The other side says something this often, so that a link which is cut without a word is noticed.
BEAT_S = 10.0
SILENT_S = 65.0
# A client that has lost its tunnel tries for less long than this to build it again.
GRACE_S = 150.0
GREET_S = 5.0
BEAT, GOODBYE = b"\n", b"bye\n"
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifeline:
    """Where the client's side listens, as seen from the engine.

    Parameters
    ----------
    host, port
        The address.
    token
        What it greets with, in hex digits: whoever else listens there is not this client.
    """

    host: str
    port: int
    token: str

    def connect(self) -> socket.socket | None:
        """A connection to the client; None where there is none."""
        with contextlib.suppress(OSError):
            line = socket.create_connection((self.host, self.port), timeout=GREET_S)
            greeting = _read_line(line)
            if greeting == self.token.encode():
                return line
            line.close()
        return None

    def answers(self) -> bool:
        """Whether the client is there."""
        line = self.connect()
        if line is None:
            return False
        line.close()
        return True

    def follow(self, end: Callable[[], None]) -> None:
        """Call `end` on a thread of its own once the client has said goodbye or has been gone too long."""
        threading.Thread(target=self._follow, args=(end,), name="ngbkit-lifeline", daemon=True).start()

    def _follow(self, end: Callable[[], None]) -> None:
        lost_at = time.monotonic()
        while time.monotonic() - lost_at < GRACE_S:
            line = self.connect()
            if line is not None:
                with line:
                    if _hold(line):
                        break
                lost_at = time.monotonic()
            time.sleep(_AGAIN_S)
        end()


def _hold(line: socket.socket) -> bool:
    """Wait on a connection until it ends; whether by a goodbye."""
    line.settimeout(SILENT_S)
    with contextlib.suppress(OSError):
        while came := line.recv(64):
            if came.strip():
                return True
    return False


def _read_line(line: socket.socket) -> bytes:
    came = b""
    while not came.endswith(b"\n") and len(came) < 128:
        part = line.recv(1)
        if not part:
            break
        came += part
    return came.strip()
