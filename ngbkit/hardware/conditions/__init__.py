"""Conditions of a measurement: observed before it, warned about in plain sentences, and monitored during each turn."""

from ngbkit.hardware.conditions.interference import Interference, InterferenceMonitor
from ngbkit.hardware.conditions.machine import list_warnings, observe

__all__ = ["Interference", "InterferenceMonitor", "list_warnings", "observe"]
