"""Devices of one machine, as far as the devices file says: their engines start together, and their plans take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby

from ngbkit.cluster import devices
from ngbkit.cluster.devices import Device

_POLL_S = 0.1


class Starts:
    """The engines that start for a sweep: none measures while another one of its machine starts, which disturbs it."""

    def __init__(self, labels: Iterable[str]) -> None:
        self._ready = {label: threading.Event() for label in labels}
        self._neighbours = {label: group for group in group_by_machine(self._ready) for label in group}

    def finish(self, label: str) -> None:
        """Count the engine of a device as started, or as one that does not start."""
        self._ready[label].set()

    def wait(self, label: str, report: Callable[[str], object], stopped: Callable[[], bool]) -> None:
        """Wait until the other engines of that machine have started; raise InterruptedError once that is stopped."""
        for neighbour in self._neighbours[label]:
            if not self._ready[neighbour].is_set():
                report(f"waiting until the engine of {neighbour} has started, on the same machine")
            while not self._ready[neighbour].wait(_POLL_S):
                if stopped():
                    raise InterruptedError


def group_by_machine(labels: Iterable[str]) -> list[list[str]]:
    """Group devices by their machine; one whose machine the devices file does not name is on its own."""
    file = devices.load()

    def locate(label: str) -> tuple[str, str]:
        device = file.get(label)
        if device is None or device.launch not in ("local", "ssh"):
            return "device", label
        return "machine", device.host or ""

    return [list(group) for _, group in groupby(sorted(labels, key=locate), locate)]


def group_by_cores(labels: Iterable[str]) -> list[list[str]]:
    """Group devices that measure one after the other: a machine's devices whose cores overlap, also through others."""
    file, groups = devices.load(), []
    for machine in group_by_machine(labels):
        turns: list[list[str]] = []
        for label in machine:
            joined = [group for group in turns if any(_share_cores(file.get(label), file.get(name)) for name in group)]
            turns = [group for group in turns if group not in joined]
            turns.append([*chain.from_iterable(joined), label])
        groups += turns
    return groups


def _share_cores(first: Device | None, second: Device | None) -> bool:
    """Return whether two devices of a machine have a core in common; without `cores`, a device has all of them."""
    cores: Sequence[Iterable[int] | None] = [device.cores if device else None for device in (first, second)]
    return None in cores or bool(set(cores[0] or ()) & set(cores[1] or ()))
