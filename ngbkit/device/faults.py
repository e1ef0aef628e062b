"""The cost of a page fault: the processor time of a process for each page that the kernel gives to it."""

from __future__ import annotations

import json
import mmap
import time
from pathlib import Path
from statistics import median

import numpy as np

from ngbkit.device.peaks import read_entries
from ngbkit.files import write_atomically
from ngbkit.options import LAYOUT

_KEY = "page faults"  # beside the peaks in their file
_DAY_S = 86_400.0
_BYTES = 16 << 20


def load_or_measure(state_dir: Path) -> float:
    """Load the seconds of a fault on this device, or measure them once a day."""
    file = state_dir / LAYOUT.peaks
    entries = read_entries(file)
    entry = entries.get(_KEY)
    if entry is not None and 0 <= time.time() - entry["measured_at"] < _DAY_S:
        return float(entry["fault_s"])
    fault_s = measure()
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps({**entries, _KEY: {"fault_s": fault_s, "measured_at": time.time()}}, indent=1))
    return fault_s


def measure(seconds: float = 0.2) -> float:
    """Measure the median processor time of a fault: the first touch of fresh pages, less a second one of the same."""
    costs_s: list[float] = []
    deadline = time.perf_counter() + seconds
    while not costs_s or time.perf_counter() < deadline:
        with mmap.mmap(-1, _BYTES) as block:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                block.madvise(mmap.MADV_NOHUGEPAGE)
            pages = np.frombuffer(block, np.uint8)[:: mmap.PAGESIZE]
            first_s, second_s = (_touch(pages, value) for value in (1, 2))
            count = len(pages)
            del pages
        costs_s.append(max(0.0, first_s - second_s) / count)
    return median(costs_s)


def _touch(pages: np.ndarray, value: int) -> float:
    start = time.thread_time()
    pages[:] = value
    return time.thread_time() - start
