"""JSON messages over a local socket, each behind its length."""

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
    """The other side is gone."""


class Channel:
    """One end of a conversation in JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, message: Message) -> None:
        data = json.dumps(message).encode()
        try:
            self.socket.sendall(_LENGTH.pack(len(data)) + data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout_s: float | None = None, interrupt: int | None = None) -> Message:
        """The next message.

        Parameters
        ----------
        timeout_s
            Raises TimeoutError when no whole message has come by then; None waits for ever.
        interrupt
            A file descriptor: raises InterruptedError when it becomes readable first.

        Raises
        ------
        ChannelClosedError
            The other side closed, or ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        length = _LENGTH.unpack(self._read(_LENGTH.size, deadline, interrupt))[0]
        message: Message = json.loads(self._read(length, deadline, interrupt))
        return message

    def _read(self, size: int, deadline: float | None, interrupt: int | None) -> bytes:
        data = bytearray()
        watched: list[Any] = [self.socket] if interrupt is None else [self.socket, interrupt]
        while len(data) < size:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(watched, [], [], left)
            if not ready:
                raise TimeoutError
            if interrupt in ready:
                raise InterruptedError
            data += self._some(size - len(data))
        return bytes(data)

    def _some(self, size: int) -> bytes:
        try:
            part = self.socket.recv(size)
        except ConnectionResetError:
            part = b""
        if not part:
            raise ChannelClosedError("the other side closed the channel")
        return part

    def close(self) -> None:
        self.socket.close()
