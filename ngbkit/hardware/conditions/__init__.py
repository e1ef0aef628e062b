"""Conditions of a measurement: observed before it, warned about in plain sentences, and monitored during each turn."""

from ngbkit.hardware.conditions.interference import Interference, InterferenceMonitor
from ngbkit.hardware.conditions.machine import BUSY_PERCENT, describe_other_work, list_warnings, observe

__all__ = ["BUSY_PERCENT", "Interference", "InterferenceMonitor", "describe_other_work", "list_warnings", "observe"]
