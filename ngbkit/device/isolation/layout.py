"""The layout of a child's memory, which differs from child to child.

Forked children have the addresses of their server: what a layout does to a program would be in all of its processes
alike, and in no interval (Curtsinger and Berger, 2013, "Stabilizer").
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Sequence
from typing import Any

# Pages before later mappings, and steps of 16 bytes, up to a page, before later objects of the heap.
_PAGES, _STEPS = 4096, mmap.PAGESIZE // 16
# Small objects of Python have pools of their own.
_LEAST_BYTES = 1024
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_pads: list[Any] = []


def draw(generator: random.Random | None = None) -> Sequence[int]:
    """Move what this process allocates from now on by a random distance; return its pages and bytes.

    Neither is touched, so that they cost addresses and no memory.
    """
    generator = generator or random.SystemRandom()
    pages, size = generator.randrange(1, _PAGES), _LEAST_BYTES + 16 * generator.randrange(_STEPS)
    _pads.extend((mmap.mmap(-1, pages * mmap.PAGESIZE, flags=_PRIVATE), bytearray(size)))
    return pages, size
