"""The process of a local cluster's controller: ipyparallel's, ending with the client that started it.

Run as the module ``ngbkit.cluster.controller``; ``NGBKIT_WATCH`` is the id of the process to end with.
"""

from __future__ import annotations

import os

from ngbkit.device.process_lifetime import end_with, end_with_parent


def main() -> None:
    """Run an ipyparallel controller."""
    from ipyparallel.controller.app import IPController

    class Controller(IPController):  # type: ignore[misc, unused-ignore]
        """A controller that imports nothing from the working folder."""

        def to_work_dir(self) -> None:
            pass

    if client := os.environ.get("NGBKIT_WATCH"):
        end_with(int(client))
    # Its schedulers are forked, and would outlive a killed controller.
    os.register_at_fork(after_in_child=end_with_parent)
    Controller.launch_instance()


if __name__ == "__main__":
    main()
