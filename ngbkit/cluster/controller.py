"""The process that a local cluster's controller is: ipyparallel's, ending with the client that started it.

Run as ``python -m ngbkit.cluster.controller``; ``NGBKIT_WATCH`` names the process to end with.
"""

from __future__ import annotations

import os

from ngbkit.device.watch import end_with


def main() -> None:
    """Be an ipyparallel controller."""
    from ipyparallel.controller.app import main as be_controller

    if watched := os.environ.get("NGBKIT_WATCH"):
        end_with(int(watched))
    be_controller()


if __name__ == "__main__":
    main()
