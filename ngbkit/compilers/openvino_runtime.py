"""OpenVINO, imported without its telemetry, and the one `Core` of the process.

``import openvino`` sends an event over the network from its own threads, which is unacceptable in a lab and would not
survive a fork. OpenVINO uses a stub if its telemetry package cannot be imported, so this module makes it unimportable.
Fork servers preload this module.
"""

from __future__ import annotations

import functools
import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None means: raise ImportError

import openvino  # noqa: E402  after the telemetry is disabled

__all__ = ["get_core", "openvino"]


@functools.cache
def get_core() -> openvino.Core:
    """Return the only `Core` of the process.

    OpenVINO's CPU plugin replaces the thread's signal stack, and restores the previous one when it is destroyed. With
    two overlapping plugins the restored stack may be the other's, already unmapped, and the next signal kills the
    process (seen in 2026.4).
    """
    return openvino.Core()
