"""The process that a local cluster's controller is: ipyparallel's, ending with the client that started it.

Run as ``python -m ngbkit.cluster.controller``; ``NGBKIT_WATCH`` names the process to end with.
"""

from __future__ import annotations

import os

from ngbkit.device.process_lifetime import end_with, end_with_parent


def main() -> None:
    """Be an ipyparallel controller."""
    from ipyparallel.controller.app import main as be_controller

    if watched := os.environ.get("NGBKIT_WATCH"):
        end_with(int(watched))
    # Its schedulers are forked, and would outlive it where it is killed itself.
    os.register_at_fork(after_in_child=end_with_parent)
    be_controller()


if __name__ == "__main__":
    main()
