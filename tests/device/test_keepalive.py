"""The keepalive connection: each side proves itself, and the engine ends with its client."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from patience import wait_until

from ngbkit.device import keepalive
from ngbkit.device.keepalive import GOODBYE, Keepalive, greet

TOKEN = "ab" * 16


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """The socket on which a client listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def build_keepalive(server: socket.socket, token: str = TOKEN) -> Keepalive:
    """Build the address of a server."""
    return Keepalive(host="127.0.0.1", port=server.getsockname()[1], token=token)


def accept(server: socket.socket, answer: Callable[[socket.socket], object]) -> threading.Thread:
    """Answer the next connection on a thread of its own, and close it."""

    def answer_one() -> None:
        connection, _ = server.accept()
        with connection:
            answer(connection)

    thread = threading.Thread(target=answer_one, daemon=True)
    thread.start()
    return thread


def test_a_goodbye_ends_at_once(server: socket.socket) -> None:
    """Beats before it do not."""
    ended: list[bool] = []
    build_keepalive(server).follow(lambda: ended.append(True))
    connection, _ = server.accept()
    is_engine = greet(connection, TOKEN)
    connection.sendall(b"\n\n")
    time.sleep(0.2)
    early = list(ended)
    connection.sendall(GOODBYE)
    wait_until(lambda: ended)
    connection.close()

    assert is_engine
    assert [] == early


def test_a_lost_client_ends_the_engine_after_a_while(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel that returns in time does not."""
    monkeypatch.setattr(keepalive, "GRACE_S", 2.0)
    monkeypatch.setattr(keepalive, "_RETRY_S", 0.1)
    ended: list[bool] = []
    build_keepalive(server).follow(lambda: ended.append(True))
    for _ in range(2):
        connection, _ = server.accept()
        with connection:
            assert greet(connection, TOKEN)
            time.sleep(0.1)
    survived = not ended
    server.close()
    wait_until(lambda: ended)

    assert survived


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
        lambda connection: connection.sendall(TOKEN.encode() + b"\n"),
        lambda connection: connection.sendall(b"x" * 10_000),
        lambda connection: connection.sendall(b"\xff\xfe\n\n"),
        lambda connection: greet(connection, "cd" * 16),
        lambda connection: None,
    ],
    ids=["ssh", "the token", "a long line", "no text", "another secret", "nothing"],
)
def test_a_stranger_on_the_port_is_not_the_client(
    server: socket.socket, answer: Callable[[socket.socket], object]
) -> None:
    """The keepalive fails if another process owns the client's port."""
    thread = accept(server, answer)
    is_answered = build_keepalive(server).is_answered()
    thread.join()

    assert not is_answered


def test_a_client_that_drips_is_given_up(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole handshake is limited, and not each byte of it."""
    monkeypatch.setattr(keepalive, "GREET_S", 0.3)

    def drip(connection: socket.socket) -> None:
        for _ in range(60):
            try:
                connection.sendall(b"0")
            except OSError:
                return
            time.sleep(0.05)
        dripped.append(True)

    dripped: list[bool] = []
    thread = accept(server, drip)
    is_answered = build_keepalive(server).is_answered()
    thread.join()

    assert not is_answered
    assert not dripped


def test_the_token_is_never_sent(server: socket.socket) -> None:
    """The token is never sent to either side, and a recorded exchange is of no use in another."""
    heard: list[bytes] = []

    def listen(connection: socket.socket) -> None:
        connection.sendall(b"00" * 16 + b"\n")
        heard.append(connection.recv(1000))

    accept(server, listen)
    build_keepalive(server).is_answered()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(heard[0])
        is_engine = greet(ours, TOKEN)
        sent = theirs.recv(1000)

    assert re.fullmatch(rb"[0-9a-f]{32} [0-9a-f]{64}\n", heard[0])
    assert re.fullmatch(rb"[0-9a-f]{32}\n", sent)
    assert not is_engine
    assert TOKEN not in repr(build_keepalive(server))
