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
_BYTES = 64 << 20  # more than caches hold


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
    """Measure the median processor time of a fault: that of filling fresh pages, less that of filling them again.

    Whole pages are written, as tensors are: the kernel's zeros leave a page in the cache, so that the write is cheaper.
    """
    costs_s: list[float] = []
    deadline = time.perf_counter() + seconds
    while not costs_s or time.perf_counter() < deadline:
        with mmap.mmap(-1, _BYTES) as block:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                block.madvise(mmap.MADV_NOHUGEPAGE)
            values = np.frombuffer(block, np.uint8)
            first_s, second_s = (_fill(values, value) for value in (1, 2))
            del values  # the block cannot be unmapped while it is an array
        costs_s.append(max(0.0, first_s - second_s) * mmap.PAGESIZE / _BYTES)
    return median(costs_s)


def _fill(values: np.ndarray, value: int) -> float:
    start = time.thread_time()
    values[:] = value
    return time.thread_time() - start
