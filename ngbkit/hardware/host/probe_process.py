"""The process of a probe, on a core of its own: it waits for a letter, does fixed work, and answers how long that took.

It is a script, ``python -I -S probe_process.py CORE MEMORY``, where `MEMORY` is the descriptor of a page that it shares
with a peer. With the standard library alone it starts in some milliseconds.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

LEAD, FOLLOW, WORK = b"l", b"f", b"w"
ANSWER = struct.Struct("d")
PAGE = 4096
# Beyond the pairs of lines that some processors fetch together.
_PEER = 256
# The fastest burst counts: an interrupt, or a peer that begins late, spoils one of them.
_TRIPS, _BURSTS = 40, 5
_PRODUCTS, _REPEATS = 4, 5
# A peer that has lost its core is not waited for.
_MOST_WAITS = 100_000
# Products of integers of this many bits keep the arithmetic units of a core busy, as networks do; a loop of the
# interpreter leaves room for the other thread of the same core.
_BITS = 3_000


def main(core: int, descriptor: int) -> None:
    os.sched_setaffinity(0, {core})
    page = memoryview(mmap.mmap(descriptor, PAGE))
    sent, answered = page[:1], page[_PEER : _PEER + 1]
    number = (1 << _BITS) // 3
    tasks = {LEAD: lambda: lead(sent, answered), FOLLOW: lambda: follow(sent, answered), WORK: lambda: work(number)}
    os.write(1, ANSWER.pack(0.0))
    while letter := os.read(0, 1):
        os.write(1, ANSWER.pack(tasks[letter]()))


def lead(sent: memoryview, answered: memoryview) -> float:
    """Send numbers to the peer, one after the other answer; return the seconds of a round trip."""
    fastest = float("inf")
    for _ in range(_BURSTS):
        start = time.perf_counter()
        for number in range(_TRIPS):
            sent[0] = number
            if not _wait(answered, number):
                return float("nan")
        fastest = min(fastest, time.perf_counter() - start)
    return fastest / _TRIPS


def follow(sent: memoryview, answered: memoryview) -> float:
    """Answer the numbers of the peer."""
    for _ in range(_BURSTS):
        for number in range(_TRIPS):
            if not _wait(sent, number):
                return float("nan")
            answered[0] = number
    return 0.0


def work(number: int) -> float:
    """Return the seconds of some products."""
    fastest = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        for _ in range(_PRODUCTS):
            number * number
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def _wait(line: memoryview, number: int) -> bool:
    waits = 0
    while line[0] != number:
        waits += 1
        if waits > _MOST_WAITS:
            return False
    return True


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
