"""OpenVINO, imported without its telemetry, and its one `Core` of a process.

``import openvino`` sends an event over the network from threads of its own, which would neither do in a lab nor survive
a fork. Where its telemetry package cannot be imported, OpenVINO uses a stub; so it is kept out of reach. This module is
what a fork server preloads.
"""

from __future__ import annotations

import functools
import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None means: raise ImportError

import openvino  # noqa: E402  after the telemetry is out of reach

__all__ = ["core", "openvino"]


@functools.cache
def core() -> openvino.Core:
    """The process's `Core`: one, for ever.

    OpenVINO's CPU plugin lends the thread a signal stack, and puts back the one before when it goes. Where two have
    overlapped, "the one before" is the other's, unmapped since, and the next signal ends the process (seen in 2026.4).
    """
    return openvino.Core()
