"""The process of a local cluster's controller: ipyparallel's, ending with the client that started it.

Run as the module ``ngbkit.cluster.controller``; ``NGBKIT_WATCH`` is the id of the process to end with.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import psutil

from ngbkit.device.process_lifetime import end_group, end_with, end_with_parent

READY = "ready"
"""The file in the profile of a controller that listens on all of its ports."""

_POLL_S = 0.02
# Schedulers that have not ended after this time listen, where the system does not show who does.
_SETTLED_S = 5.0
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
            ready = Path(self.profile_dir.location) / READY
            threading.Thread(target=_watch_children, args=(children, ready), daemon=True).start()

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
    # Bound without listening, it is given to no program that asks for any port, and a scheduler may listen on it. So
    # may another program that chose it before in the same way, such as a Jupyter kernel: then this controller ends.
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("", 0))
    port = int(reservation.getsockname()[1])
    _reserved[port] = reservation
    return port


def _watch_children(children: Sequence[Any], ready: Path) -> None:
    """Write the file once they listen on all ports; end the controller as soon as one of them ends."""
    sentinels, pids = [child.sentinel for child in children], [os.getpid(), *(child.pid for child in children)]
    deadline = time.monotonic() + _SETTLED_S
    while not wait(sentinels, timeout=_POLL_S):
        if _listen_on(_reserved, pids) or time.monotonic() > deadline:
            ready.touch()
            wait(sentinels)
    # Or engines and clients would wait for ever.
    end_group()


def _listen_on(ports: Collection[int], pids: Sequence[int]) -> bool:
    """Return whether these processes listen on all of these ports."""
    listening = set()
    for pid in pids:
        with suppress(psutil.Error, OSError):
            connections = psutil.Process(pid).net_connections("tcp")
            listening |= {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return listening.issuperset(ports)


if __name__ == "__main__":
    main()
