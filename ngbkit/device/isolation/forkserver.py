"""The process that forks children, with the heavy imports already loaded.

Run as ``python -m ngbkit.device.isolation.forkserver CONTROL_FD MODULE,MODULE STATES``. The states of the files that it
has imported are in the file STATES once it is ready. It blocks on its control socket and ends when that closes, also
during its imports; the kernel then kills its children. Nothing that a child started outlives the child: whatever left
its process group becomes a child of this process with the end of its parents, and is killed.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.device.isolation import child, layout
from ngbkit.device.isolation.channel import Channel
from ngbkit.device.process_lifetime import adopt_orphans, end_children, end_with_parent
from ngbkit.files import write_atomically
from ngbkit.hardware.accelerators import cuda
from ngbkit.workloads.content.loading import keep_fresh, list_imported
from ngbkit.workloads.content.manifests import read_states
from ngbkit.workloads.subprocesses import build_arguments

# Out of memory, the kernel kills children before the engine or the notebook.
_OOM_SCORE = b"1000"


def serve(control: socket.socket) -> None:
    """Fork and reap on demand until the control socket closes."""
    adopt_orphans()
    running: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 18, 1)
        if not data:
            end_children()
            return
        request = json.loads(data)
        if request["op"] == "reap":
            reply = _reap(request["pid"])
            running.discard(request["pid"])
            end_children(spared=running)
        else:
            reply = _fork(control, descriptors[0], request)
            running.add(reply["pid"])
            if request["op"] == "branch":  # which answers itself
                continue
        control.send(json.dumps(reply).encode())


def _fork(control: socket.socket, descriptor: int, request: dict[str, Any]) -> dict[str, Any]:
    """Fork a child, or a server that imports more."""
    server = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        return {"pid": pid}
    try:
        control.close()
        _become_child(server, request["log"])
        connection = socket.socket(fileno=descriptor)
        if request["op"] == "branch":
            os.chdir(request["folder"])
            _import_and_serve(connection, request["modules"], request["states"])
            os._exit(0)
        _end_before_others()
        layout.draw()
        keep_fresh()
        _enter_world(**{name: request[name] for name in ("folder", "before", "after")})
        child.serve(Channel(connection))
    except BaseException:  # noqa: BLE001  a child must never return into the server's loop
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # without cleanup of the server's resources, which the server still uses


def _become_child(server: int, log: str) -> None:
    os.setpgid(0, 0)
    end_with_parent()
    adopt_orphans()  # those of a live child are not the server's, which would kill them at the end of another child
    if os.getppid() != server:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    tempfile.tempdir = str(Path(log).parent)  # removed with the server's folder
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if isinstance(sys.stdout, io.TextIOWrapper):  # output of a killed child must not be lost in a buffer
        sys.stdout.reconfigure(line_buffering=True)


def _end_before_others() -> None:
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb") as score:
        score.write(_OOM_SCORE)


def _enter_world(folder: str, before: list[str], after: list[str]) -> None:
    """Enter the folder that networks are built in, which is the last on the path: no file in it hides a module.

    A path `before` replaces that of this process; one `after` extends it.
    """
    with suppress(OSError):  # it was removed, and its files with it
        os.chdir(folder)
    sys.path[:] = [*(before or sys.path), *after, *filter(None, [folder])]


def _reap(pid: int) -> dict[str, Any]:
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return {"exit": None, "peak_memory_bytes": None}
    return {"exit": os.waitstatus_to_exitcode(status), "peak_memory_bytes": usage.ru_maxrss * 1024}


def _end_when_closed(control: socket.socket) -> None:
    """Have the kernel end this process when the other end closes: imports of torch take a busy machine 20 s.

    The kernel sends SIGIO, which ends a process, when something happens on the socket; nothing else does before the
    server is ready. A thread that waits for the end would be a thread at each fork.
    """
    with suppress(OSError):  # a sandbox without these signals
        fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([control], [], [], 0)[0]:  # it closed before
        sys.exit()


def _start_again(control: socket.socket, modules: list[str], states: str) -> None:
    """Start this process again with the first modules only: the next one calls CUDA, and children import it themselves.

    Importing Inductor of torch 2.11 looks for GPUs and so initialises CUDA, which no forked child can use from then on.
    """
    os.set_inheritable(control.fileno(), True)
    arguments = build_arguments("ngbkit.device.isolation.forkserver", str(control.fileno()), ",".join(modules), states)
    os.execv(sys.executable, [sys.executable, *arguments])


def _import_plugins() -> None:
    """Import what every child would search and import itself, which takes it 0.1 s."""
    for group in (registry.COMPILERS, registry.WORKLOADS):
        registry.preload(group)
    importlib.import_module("numpy.random")


def _import_and_serve(control: socket.socket, modules: list[str], states: str) -> None:
    """Import the modules, report ready, and serve."""
    _end_when_closed(control)
    missing = []
    for number, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001  a damaged package may raise anything
            missing.append(module)  # a child that needs it fails with a message of its own
        if cuda.is_initialised():
            _start_again(control, modules[:number], states)
    _import_plugins()
    fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) & ~os.O_ASYNC)
    # A child's collector then visits its own objects only, and copies no page of the modules.
    gc.collect()
    gc.freeze()
    with write_atomically(Path(states)) as draft:
        draft.write_text(json.dumps(dict(read_states(list_imported()))))
    control.send(json.dumps({"pid": os.getpid(), "missing": missing}).encode())
    serve(control)


def main() -> None:
    """Serve with the control socket and the modules of the arguments."""
    descriptor, modules, states = sys.argv[1:]
    _import_and_serve(socket.socket(fileno=int(descriptor)), list(filter(None, modules.split(","))), states)


if __name__ == "__main__":
    main()
