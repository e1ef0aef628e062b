"""The keepalive connection of an engine on another machine: it ends the engine when its client is gone.

The client's side of the tunnel listens on a port of its own; the engine keeps one connection to it. Any user of either
machine can connect to such a port, or listen on it once it is free, so each side proves to the other that it knows the
token of the engine's settings, which is never sent: each answers a random challenge with its HMAC under the token.

A message on the connection ends the engine at once. If the connection is lost, the client may be rebuilding the tunnel;
if the tunnel does not return in time, the engine ends as well. Its measurements until then are in the journal.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

# The client sends a beat this often, so that the engine notices a link that fails silently.
BEAT_S = 10.0
SILENT_S = 65.0
# A client that has lost its tunnel tries for less than this to rebuild it.
GRACE_S = 150.0
# The time limit of a whole handshake.
GREET_S = 5.0
BEAT, GOODBYE = b"\n", b"bye\n"
_RETRY_S = 1.0
_CHALLENGE_BYTES = 16
# A challenge and a proof in hex digits, and the line's end.
_LONGEST_LINE = 2 * _CHALLENGE_BYTES + 64 + 1

Side = Literal["client", "engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """The address on which the client listens, as seen from the engine, and the secret that both share."""

    host: str
    port: int
    token: str = field(repr=False)

    def connect(self) -> socket.socket | None:
        """Connect to the client; None if nothing answers in time, or something else does."""
        try:
            connection = socket.create_connection((self.host, self.port), timeout=GREET_S)
        except OSError:
            return None
        if _is_client(connection, self.token):
            return connection
        connection.close()
        return None

    def is_answered(self) -> bool:
        """Return whether the client answers."""
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


def greet(connection: socket.socket, token: str) -> bool:
    """Handshake as the client with whoever connected; return whether it is an engine that knows the token.

    client: challenge
    engine: its own challenge, and the proof that it knows the token
    client: its proof
    """
    deadline = time.monotonic() + GREET_S
    challenge = secrets.token_hex(_CHALLENGE_BYTES)
    try:
        connection.settimeout(GREET_S)
        connection.sendall(f"{challenge}\n".encode())
        answer, _, proof = _read_line(connection, deadline).partition(" ")
        if not hmac.compare_digest(proof.encode(), _build_proof(token, "engine", challenge, answer).encode()):
            return False
        connection.sendall(f"{_build_proof(token, 'client', challenge, answer)}\n".encode())
    except OSError:
        return False
    return True


def _is_client(connection: socket.socket, token: str) -> bool:
    """Handshake as the engine; return whether the other side is the client."""
    deadline = time.monotonic() + GREET_S
    try:
        challenge, answer = _read_line(connection, deadline), secrets.token_hex(_CHALLENGE_BYTES)
        connection.sendall(f"{answer} {_build_proof(token, 'engine', challenge, answer)}\n".encode())
        proof = _build_proof(token, "client", challenge, answer)
        return hmac.compare_digest(_read_line(connection, deadline).encode(), proof.encode())
    except OSError:
        return False


def _build_proof(token: str, side: Side, challenge: str, answer: str) -> str:
    # With the side, nobody can use the proof of one side as that of the other.
    return hmac.digest(token.encode(), f"{side} {challenge} {answer}".encode(), "sha256").hex()


def _wait_for_goodbye(connection: socket.socket) -> bool:
    """Wait until a connection ends; return whether it ended with a goodbye."""
    connection.settimeout(SILENT_S)
    with contextlib.suppress(OSError):
        while data := connection.recv(64):
            if data.strip():
                return True
    return False


def _read_line(connection: socket.socket, deadline: float) -> str:
    """Read a line of bounded length until the deadline, without its end; ConnectionError if there is none."""
    line = b""
    while len(line) <= _LONGEST_LINE:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        byte = connection.recv(1)
        if byte == b"\n":
            return line.decode(errors="replace")
        if not byte or time.monotonic() > deadline:
            break
        line += byte
    raise ConnectionError("expected a line")
