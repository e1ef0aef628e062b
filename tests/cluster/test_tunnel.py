"""The client's end of the keepalive connection: strangers neither end it nor pass for an engine."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from patience import wait_until

from ngbkit.cluster import tunnel
from ngbkit.device.keepalive import Keepalive

TOKEN = "ab" * 16


@pytest.fixture
def reports() -> list[Mapping[str, Any]]:
    """What the process of the tunnel tells its client."""
    return []


@pytest.fixture
def keeper(reports: list[Mapping[str, Any]]) -> Iterator[tunnel._Keeper]:
    """One that accepts connections, without ssh."""
    keeper = tunnel._Keeper("far", [], TOKEN, reports.append)
    accepting = threading.Thread(target=keeper._accept_engines, daemon=True)
    accepting.start()
    yield keeper
    keeper._leaving.set()
    keeper._server.shutdown(socket.SHUT_RDWR)  # wakes the thread
    accepting.join()
    keeper._server.close()
    for connection in list(keeper._strangers):
        with suppress(OSError):  # one that a test has reset
            connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not keeper._strangers)
    for connection in keeper._engines:
        connection.close()


def connect(keeper: tunnel._Keeper) -> socket.socket:
    return socket.create_connection(("127.0.0.1", keeper._keepalive_port), timeout=10)


def reset(connection: socket.socket) -> None:
    """Close a connection so that the other side reads an error."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def build_keepalive(keeper: tunnel._Keeper, token: str = TOKEN) -> Keepalive:
    return Keepalive(host="127.0.0.1", port=keeper._keepalive_port, token=token)


def test_no_connection_ends_the_greeter(keeper: tunnel._Keeper) -> None:
    """The greeter survives connections that reset, stay silent or send anything."""
    for words in (None, b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 10_000, b"\xff\n"):
        connection = connect(keeper)
        if words is None:
            reset(connection)
            continue
        connection.sendall(words)
        reset(connection)
    silent = connect(keeper)
    is_answered = build_keepalive(keeper).is_answered()
    silent.close()

    assert is_answered


def test_only_an_engine_says_that_the_tunnel_is_up(keeper: tunnel._Keeper, reports: list[Mapping[str, Any]]) -> None:
    """A stranger proves nothing about the ports on the device."""
    with connect(keeper) as stranger:
        stranger.recv(100)
        stranger.sendall(TOKEN.encode() + b"\n")
        stranger.recv(100)
    assert not build_keepalive(keeper, "cd" * 16).is_answered()
    early = list(reports)
    connection = build_keepalive(keeper).connect()
    wait_until(lambda: reports)

    assert [] == early
    assert ["up"] == [report["state"] for report in reports]
    assert connection is not None
    connection.close()


def test_silent_connections_do_not_keep_an_engine_out(keeper: tunnel._Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of them are closed."""
    monkeypatch.setattr(tunnel, "_MOST_STRANGERS", 3)
    strangers = [connect(keeper) for _ in range(8)]
    wait_until(lambda: len(keeper._strangers) <= 3)
    is_answered = build_keepalive(keeper).is_answered()
    strangers[0].recv(100)
    closed = strangers[0].recv(100)
    for stranger in strangers:
        stranger.close()

    assert is_answered
    assert b"" == closed


def test_an_engine_that_left_is_forgotten(keeper: tunnel._Keeper) -> None:
    """A beat to a closed connection closes it here, and reaches the others."""
    lost, other = (build_keepalive(keeper).connect() for _ in range(2))
    assert lost is not None
    assert other is not None
    wait_until(lambda: len(keeper._engines) == 2)
    reset(lost)

    def is_forgotten() -> bool:
        keeper._broadcast(b"\n")
        return len(keeper._engines) == 1

    wait_until(is_forgotten)
    beat = other.recv(1)
    other.close()

    assert b"\n" == beat
