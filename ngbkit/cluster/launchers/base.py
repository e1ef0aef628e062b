"""The base of the launchers: the caller that waits for an engine, and a device's Python, state folder and settings."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ngbkit.cluster.devices import Device
from ngbkit.cluster.shell import join_words
from ngbkit.device.engine import Settings
from ngbkit.options import LAYOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The caller that waits for an engine: `report` reports the progress, `stopped` returns whether to give up."""

    report: Callable[[str], object]
    stopped: Callable[[], bool]


SILENT = Starter(report=str, stopped=bool)

# A fleet starts so many engines at once: each start fills a core for a second, and an ssh server refuses connections
# while ten others log in.
MOST_STARTS = 8
# After so long without the end of any start, the others wait no longer for those that hang.
_PATIENCE_S = 60.0
_RETRY_S = 1.0


class _Starts:
    """The starts in progress in this process."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(MOST_STARTS)
        self._ended_at = 0.0

    @contextmanager
    def limit(self, starter: Starter) -> Iterator[None]:
        """Count as a start for the block, after waiting for a free slot; InterruptedError if the caller gives up."""
        began = time.monotonic()
        while not (has_slot := self._slots.acquire(timeout=_RETRY_S)):
            if starter.stopped():
                raise InterruptedError("stopped while waiting for other engines to start")
            if time.monotonic() - max(began, self._ended_at) > _PATIENCE_S:
                break
        try:
            yield
        finally:
            self._ended_at = time.monotonic()
            if has_slot:
                self._slots.release()


starts = _Starts()


def build_settings(device: Device, identity: str, connection: dict[str, Any], **others: Any) -> Settings:
    """Build the settings of a device's engine; `others` add to those of the devices file, or replace them."""
    fields: dict[str, Any] = {"state_dir": device.state_dir, "cores": device.cores, **others}
    return Settings(
        label=device.label, identity=identity, connection=connection, environment=device.environment(), **fields
    )


def build_python_command(device: Device, *arguments: str) -> str:
    """Build the line of ``sh`` that runs the device's Python: the configured one, or that of `ngbkit deploy`."""
    if device.python is not None:
        return f"exec {join_words([device.python, *arguments])}"
    return f"exec {quote_state_dir(device)}/{LAYOUT.env}/bin/python {shlex.join(arguments)}"


def quote_state_dir(device: Device) -> str:
    """Quote the device's state folder for ``sh``: the configured one, or the default on that machine."""
    if device.state_dir is not None:
        return join_words([device.state_dir])
    return '"${NGBKIT_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ngbkit}"'
