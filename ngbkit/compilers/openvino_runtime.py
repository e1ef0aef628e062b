"""OpenVINO, imported without its telemetry.

``import openvino`` sends an event over the network from threads of its own, which would neither do in a lab nor survive
a fork. Where its telemetry package cannot be imported, OpenVINO uses a stub; so it is kept out of reach. This module is
what a fork server preloads.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None means: raise ImportError

import openvino  # noqa: E402  after the telemetry is out of reach

__all__ = ["openvino"]
