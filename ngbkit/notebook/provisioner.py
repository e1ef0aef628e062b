"""What starts a kernel for a device: on this machine, with that device as the one that sweeps measure on."""

from __future__ import annotations

from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Unicode

from ngbkit import options
from ngbkit.cluster import devices


class DeviceProvisioner(LocalProvisioner):
    """Starts a kernel as Jupyter does, after a look whether its device is in the devices file.

    The kernel itself runs here: what runs on the device is its engine, which the first sweep starts.
    """

    device = Unicode(help="the label of the device in the devices file").tag(config=True)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Tell the kernel its device.

        Raises
        ------
        UnknownNameError
            The devices file has no such device any more: the error names those that it has.
        """
        devices.check([self.device])
        environment = {**kwargs.get("env", {}), options.DEVICE: self.device}
        found: dict[str, Any] = await super().pre_launch(**{**kwargs, "env": environment})
        return found
