"""The process that an engine is: ipyparallel's, on the cores of its device, ending with the client that started it.

Run as ``python -m ngbkit.device.engine``; ``NGBKIT_WATCH`` names the process to end with, ``NGBKIT_CORES`` the cores
("0,2").
"""

from __future__ import annotations

import os

from ngbkit.device.watch import end_with


def main() -> None:
    """Apply the device's settings to this process, then be an ipyparallel engine."""
    from ipyparallel.engine.app import main as be_engine

    if watched := os.environ.get("NGBKIT_WATCH"):
        end_with(int(watched))
    if cores := os.environ.get("NGBKIT_CORES"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    be_engine()


if __name__ == "__main__":
    main()
