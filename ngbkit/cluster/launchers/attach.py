"""Launcher of a device that is an engine of the user's own ipyparallel cluster."""

from __future__ import annotations

from ngbkit.cluster.attach import attach
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.launchers.base import SILENT, Starter


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Attach to the engine that the device names; it survives ngbkit."""
    del starter
    return attach(device.cluster or "", device.label, target=device.target)
