"""Starts the kernel of a device on this machine, with that device as the default of its sweeps."""

from __future__ import annotations

from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Unicode

from ngbkit import options
from ngbkit.cluster import devices


class DeviceProvisioner(LocalProvisioner):
    """Starts a kernel as Jupyter does, once its device is known to be in the devices file.

    The kernel itself runs on this machine; the device runs an engine, which the first sweep starts.
    """

    device = Unicode(help="the label of the device in the devices file").tag(config=True)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Pass the device to the kernel by its environment; raise UnknownNameError if the devices file lacks it."""
        devices.check([self.device])
        environment = {**kwargs.get("env", {}), options.DEVICE: self.device}
        launch_options: dict[str, Any] = await super().pre_launch(**{**kwargs, "env": environment})
        return launch_options
