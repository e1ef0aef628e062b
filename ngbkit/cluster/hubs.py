"""The controllers of this process: each remote device has one of its own, unless its user trusts a group to share one.

A controller's key allows to run code on all of its engines. So the devices of this machine share one, and those of a
trust group, whose user has said that each may run code on the others.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ngbkit import options
from ngbkit.cluster.devices import Device
from ngbkit.cluster.hub import Hub

# The state folder, the group, and the address on which the controller listens, None for loopback.
_Key = tuple[Path, tuple[str, str], str | None]


@dataclass(slots=True, eq=False)
class _Shared:
    hub: Hub
    # The identities of its engines.
    users: set[str] = field(default_factory=set)


_shared: dict[_Key, _Shared] = {}
# Controllers start side by side, and each only once.
_locks: defaultdict[_Key, threading.Lock] = defaultdict(threading.Lock)


def borrow(device: Device, identity: str) -> tuple[Hub, Callable[[], None]]:
    """Return the controller for an engine, and its release; it starts with its first engine and ends with its last."""
    is_direct = device.launch == "slurm" or device.network == "direct"
    key = options.get_state_dir(), _find_group(device, identity), device.address if is_direct else None
    with _locks[key]:
        shared = _shared.get(key)
        if shared is None or not shared.hub.is_alive:
            if shared is not None:
                shared.hub.stop()
            shared = _shared[key] = _Shared(Hub.start(key[2]))
        shared.users.add(identity)

    def release() -> None:
        with _locks[key]:
            shared.users.discard(identity)
            if not shared.users:
                shared.hub.stop()
                if _shared.get(key) is shared:
                    del _shared[key]

    return shared.hub, release


def _find_group(device: Device, identity: str) -> tuple[str, str]:
    if device.trust is not None:
        return "trust", device.trust
    return ("local", "") if device.launch == "local" else ("own", identity)
