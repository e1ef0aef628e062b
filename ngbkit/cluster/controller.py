"""The process of a local cluster's controller: ipyparallel's, ending with the client that started it.

Run as ``python -m ngbkit.cluster.controller``; ``NGBKIT_WATCH`` is the id of the process to end with.
"""

from __future__ import annotations

import os

from ngbkit.device.process_lifetime import end_with, end_with_parent


def main() -> None:
    """Run an ipyparallel controller."""
    from ipyparallel.controller.app import main as run_controller

    if client := os.environ.get("NGBKIT_WATCH"):
        end_with(int(client))
    # Its schedulers are forked, and would outlive a killed controller.
    os.register_at_fork(after_in_child=end_with_parent)
    run_controller()


if __name__ == "__main__":
    main()
