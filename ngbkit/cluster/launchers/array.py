"""Launcher of a device that is a Slurm job array: its nodes share the trials of a sweep, without an engine."""

from __future__ import annotations

from ngbkit.cluster.array_engine import ArrayEngine
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.launchers.base import SILENT, Starter


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Return the login node's answers; a plan submits the array."""
    del starter  # nothing runs before a plan
    return ArrayEngine.create(device)
