"""The process of a local cluster's controller: ipyparallel's, ending with the client that started it.

Run as the module ``ngbkit.cluster.controller``; ``NGBKIT_WATCH`` is the id of the process to end with.
"""

from __future__ import annotations

import os
import socket
import threading
from multiprocessing.connection import wait

from ngbkit.device.process_lifetime import end_group, end_with, end_with_parent

# Sockets that keep a port from everything else on this machine, by port.
_reserved: dict[int, socket.socket] = {}


def main() -> None:
    """Run an ipyparallel controller."""
    from ipyparallel.controller.app import IPController

    class Controller(IPController):  # type: ignore[misc, unused-ignore]
        """A controller that owns its ports, ends with its schedulers, and imports nothing from the working folder."""

        def to_work_dir(self) -> None:
            pass

        def next_port(self, *_pool: str) -> int:
            return reserve_port()

        def start(self) -> None:
            # The loop runs once the schedulers have started.
            self.loop.add_callback(self._watch)
            super().start()

        def _watch(self) -> None:
            children = [getattr(child, "launcher", child) for child in (*self.children, self.heartmonitor_process)]
            threading.Thread(target=_end_with_any, args=([child.sentinel for child in children],), daemon=True).start()

    if client := os.environ.get("NGBKIT_WATCH"):
        end_with(int(client))
    # Its schedulers are forked, and would outlive a killed controller.
    os.register_at_fork(after_in_child=end_with_parent)
    Controller.launch_instance()


def reserve_port() -> int:
    """Reserve a free port of this machine for this process and those that it forks.

    ipyparallel frees a port that it has chosen until a scheduler listens on it. Two controllers that start together,
    each with some twenty ports, can choose the same one, and an engine never registers.
    """
    # Bound without listening, it is given to nothing else, and a scheduler that asks for its number may listen on it.
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("", 0))
    port = int(reservation.getsockname()[1])
    _reserved[port] = reservation
    return port


def _end_with_any(sentinels: list[int]) -> None:
    """End the controller as soon as one of its processes ends: without it, engines and clients would wait for ever."""
    wait(sentinels)
    end_group()


if __name__ == "__main__":
    main()
