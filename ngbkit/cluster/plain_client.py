"""A plain ipyparallel client of a device's engine, to run one's own code there."""

from __future__ import annotations

from typing import Any

from ngbkit import options
from ngbkit.cluster import engines
from ngbkit.cluster.attach import clone


def client(device: str | None = None) -> Any:
    """Connect an ipyparallel client to the engine of a device, and bind ``%px`` and ``%%px`` to that device in IPython.

    ngbkit's own clients accept nothing but text from an engine. This one is ipyparallel's: it unpickles what the device
    sends, so the device can run code here. Connect it only to a device that you trust.

    Parameters
    ----------
    device
        The label of the device, whose engine is started if it does not run. Default: the option `device`.

    Returns
    -------
    ipyparallel.Client
        Devices of this machine share a controller, as do those of a group (`trust`), so the client of one lists the
        engines of all that run. The engine answers between runs, not during one.

    Raises
    ------
    UnknownNameError, DeviceError
        The device is unknown, or its engine does not start.

    Examples
    --------
    >>> import ngbkit
    >>> rc = ngbkit.client("orin")  # doctest: +SKIP
    """
    import ipyparallel
    from IPython import get_ipython

    engine = engines.acquire(device or options.get_device())
    connected = clone(engine.view.client, ipyparallel.Client)
    if get_ipython() is not None:
        connected.activate(engine.view.targets)
    return connected
