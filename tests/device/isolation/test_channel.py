"""Messages between the engine and its children."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from ngbkit.device.isolation.channel import Channel, ChannelClosedError


@pytest.fixture
def channels() -> tuple[Channel, Channel]:
    first, second = socket.socketpair()
    return Channel(first), Channel(second)


def test_messages_arrive_whole_and_in_order(channels: tuple[Channel, Channel]) -> None:
    """Messages arrive whole and in order, even one that is larger than any buffer."""
    large = {"text": "ü" * 3_000_000}
    sender = threading.Thread(target=lambda: [channels[0].send(message) for message in ({"n": 1}, large)])
    sender.start()
    got = [channels[1].receive(10), channels[1].receive(10)]
    sender.join()

    assert [{"n": 1}, large] == got
    for end in channels:
        end.close()


def test_waiting_ends_with_the_time_the_other_side_or_an_interrupt(channels: tuple[Channel, Channel]) -> None:
    """Each raises a different error."""
    read, write = os.pipe()
    with pytest.raises(TimeoutError):
        channels[0].receive(0.01)
    os.write(write, b"x")
    with pytest.raises(InterruptedError):
        channels[0].receive(10, interrupt=read)
    channels[1].close()
    with pytest.raises(ChannelClosedError):
        channels[0].receive(10)

    assert -1 == channels[1].socket.fileno()
    channels[0].close()
    os.close(read)
    os.close(write)


def test_sending_to_a_closed_side_raises(channels: tuple[Channel, Channel]) -> None:
    """The error is that of reading."""
    channels[1].close()
    with pytest.raises(ChannelClosedError):
        channels[0].send({"x": "y" * 1_000_000})

    channels[0].close()
