"""The process that children are forked from, with the heavy imports already done.

Run as ``python -m ngbkit.device.forkserver CONTROL_FD MODULE,MODULE``. It blocks on its control socket and ends when
that closes; its children are killed by the kernel when it ends.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from ngbkit.device import child
from ngbkit.device.channel import Channel
from ngbkit.device.process_lifetime import end_with_parent

# The kernel ends a child that takes too much memory before it thinks of the engine or the notebook.
_FIRST_TO_GO = b"1000"


def serve(control: socket.socket) -> None:
    """Fork and reap on demand until the control socket closes."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not data:
            return
        request = json.loads(data)
        reply = _reap(request["pid"]) if request["op"] == "reap" else _fork(control, descriptors[0], request["log"])
        control.send(json.dumps(reply).encode())


def _fork(control: socket.socket, descriptor: int, log: str) -> dict[str, Any]:
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return {"pid": pid}
    try:
        control.close()
        _become_child(server, log)
        child.serve(Channel(socket.socket(fileno=descriptor)))
    except BaseException:  # noqa: BLE001  a child must never return into the server's loop
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # no cleanup of what the server had set up: that is the server's


def _become_child(server: int, log: str) -> None:
    os.setpgid(0, 0)
    end_with_parent()
    if os.getppid() != server:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    tempfile.tempdir = str(Path(log).parent)  # what a child leaves there goes with the server
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a child that is killed would take along what it has not written
        sys.stdout.reconfigure(line_buffering=True)
    try:
        with open("/proc/self/oom_score_adj", "wb") as score:
            score.write(_FIRST_TO_GO)
    except OSError:
        return


def _reap(pid: int) -> dict[str, Any]:
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return {"exit": None, "peak_memory_bytes": None}
    return {"exit": os.waitstatus_to_exitcode(status), "peak_memory_bytes": usage.ru_maxrss * 1024}


def main() -> None:
    """Import what was asked for, say so, and serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    missing = []
    for module in filter(None, sys.argv[2].split(",")):
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(module)  # a child that needs it says so in its own words
    control.send(json.dumps({"ready": True, "missing": missing}).encode())
    serve(control)


if __name__ == "__main__":
    main()
