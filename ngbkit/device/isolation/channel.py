"""JSON messages over a local socket, each with its length as a prefix."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

_LENGTH = struct.Struct("!I")
Message = dict[str, Any]


class ChannelClosedError(ConnectionError):
    """The peer closed the channel, or ended."""


class Channel:
    """One end of a JSON connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, message: Message) -> None:
        data = json.dumps(message).encode()
        try:
            self.socket.sendall(_LENGTH.pack(len(data)) + data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout_s: float | None = None, interrupt: int | None = None) -> Message:
        """Receive the next message; InterruptedError once the file descriptor `interrupt` is readable.

        TimeoutError if the message is incomplete after `timeout_s`, or never for None; ChannelClosedError if the peer
        closes or ends.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        length = _LENGTH.unpack(self._receive_bytes(_LENGTH.size, deadline, interrupt))[0]
        message: Message = json.loads(self._receive_bytes(length, deadline, interrupt))
        return message

    def _receive_bytes(self, size: int, deadline: float | None, interrupt: int | None) -> bytes:
        data = bytearray()
        sources: list[Any] = [self.socket] if interrupt is None else [self.socket, interrupt]
        while len(data) < size:
            remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(sources, [], [], remaining_s)
            if not ready:
                raise TimeoutError
            if interrupt in ready:
                raise InterruptedError
            data += self._receive_chunk(size - len(data))
        return bytes(data)

    def _receive_chunk(self, size: int) -> bytes:
        try:
            chunk = self.socket.recv(size)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise ChannelClosedError("the other side closed the channel")
        return chunk

    def close(self) -> None:
        self.socket.close()
