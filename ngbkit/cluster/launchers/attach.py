"""An engine of the user's own ipyparallel cluster, in the place of one that ngbkit starts."""

from __future__ import annotations

from ngbkit.cluster.attach import attach
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.launchers.base import NOBODY, Starter


def start(device: Device, starter: Starter = NOBODY) -> Engine:
    """Use the engine that the device names; it goes on when ngbkit has ended.

    Raises
    ------
    DeviceError, UsageError
        The cluster does not answer, or has no such engine.
    """
    del starter
    return attach(device.cluster or "", device.label, target=device.target)
