"""Launch of an engine on this machine, after removing the remains of earlier ones.

``python -m ngbkit.device.launch`` on a device reads an engine's `Settings` on the standard input, and answers with one
line of JSON: ``pid`` and ``folder`` of an engine that has registered with its controller, or ``error`` with the end of
its log. ``--stop FOLDER`` ends that engine; ``--attached FILE`` reads the settings from a file, removes it and becomes
the engine itself, as a batch system needs it.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import psutil

from ngbkit import limits, options, validation
from ngbkit.device import engine as engine_process
from ngbkit.device.engine import READY, Settings
from ngbkit.device.keepalive import Keepalive
from ngbkit.device.world import WARNINGS
from ngbkit.errors import DeviceError
from ngbkit.files import write_atomically
from ngbkit.user_text import parse_json, parse_path
from ngbkit.validation import PositiveCount, Seconds
from ngbkit.workloads.files import find_working_folder
from ngbkit.workloads.subprocesses import build_arguments

# The first start of an engine reads some thousand files, and took a busy machine over a minute. An engine that ends is
# noticed at once, so this limit is for one that hangs.
START_S = 180.0
_LOG, _LOG_BYTES = "engine.log", 4000
_END_S = 2.0
# A controller opens some 65 files, an engine some 55, and what they load more.
_LEAST_FILES = 128
# Engines that this process has started, by folder: only their parent can wait for them.
_children: dict[Path, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A running engine."""

    # Its process, which leads a group of its own.
    pid: int
    # The folder of its profile and its log.
    folder: Path


class _EngineMetadata(TypedDict):
    host: str
    pid: PositiveCount
    started: Seconds
    label: str
    watch: PositiveCount | None
    lifeline: Keepalive | None


def launch(settings: Settings) -> Launched:
    """Start an engine here, and wait until it has registered; DeviceError, with the end of its log, if it does not."""
    check_machine()
    home = _locate_home(settings)
    remove_leftovers(home)
    folder = home / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    receiver, ready = os.pipe()
    process = None
    try:
        with open(os.open(folder / _LOG, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as output:
            process = subprocess.Popen(
                [sys.executable, *build_arguments("ngbkit.device.engine", str(folder), str(ready))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[ready],
                cwd=find_working_folder() or folder,  # it does not start in a folder that was removed
                env=_build_environment(settings, folder),
            )
        os.close(ready)
        ready = -1
        _write_metadata(folder, process.pid, settings)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(settings.to_json().encode())
        is_registered = _wait_until_ready(receiver)
    except BaseException:
        if process is not None:
            _kill(process.pid)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(receiver)
        if ready >= 0:
            os.close(ready)
    if is_registered:
        _children[folder] = process
        return Launched(pid=process.pid, folder=folder)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)  # its pipe closes a little before it has ended
    code = process.poll()
    _kill(process.pid)
    process.wait()
    log = describe_log(folder)
    shutil.rmtree(folder, ignore_errors=True)
    reason = f"ended with {code}" if code is not None else f"did not reach its controller in {START_S:g} s"
    raise DeviceError(f"the engine {reason}; {log}")


def inherit_variables() -> dict[str, str]:
    """Return this process's variables for a controller or an engine, less ipyparallel's and the filters of warnings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("IPP_", WARNINGS))}


def check_machine() -> None:
    """Raise DeviceError if this machine lets no controller and no engine start, which would wait for each other."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= files < _LEAST_FILES:
        raise DeviceError(
            f"invalid limit of open files: got {files}; expected at least {_LEAST_FILES}. Raise it, such as with "
            "`ulimit -n 1024`."
        )
    limits.check()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_END_S).close()
    except OSError as error:
        raise DeviceError(
            f"this machine has no loopback network, by which engines are reached ({error.strerror or error}). Bring it "
            "up, such as with `ip link set lo up`."
        ) from error


def is_running(folder: Path) -> bool:
    """Return whether the engine with that folder runs."""
    metadata = _read_metadata(folder)
    return metadata is not None and _find_process(metadata) is not None


def describe_log(folder: Path) -> str:
    """Describe the end of the log of the engine with that folder, and the limit that it reports."""
    with suppress(OSError):
        return limits.describe_log((folder / _LOG).read_bytes()[-_LOG_BYTES:].decode(errors="replace").strip())
    return limits.describe_log("")


def stop(folder: Path) -> None:
    """End the engine with that folder and remove its files; do nothing if it has ended already."""
    metadata = _read_metadata(folder)
    if metadata is not None and (process := _find_process(metadata)) is not None:
        _kill(process.pid)
        psutil.wait_procs([process], timeout=10)
    child = _children.pop(folder, None)
    if child is not None:
        if child.poll() is None:  # something else deleted its folder, and its metadata with it
            _kill(child.pid)
        child.wait()
    engine_process.remove_remains(folder, -1 if metadata is None else metadata["pid"])


def remove_leftovers(home: Path) -> None:
    """Remove ended engines of this machine, and those whose client is gone; other machines may share `home`."""
    for folder in options.make_private(home).iterdir():
        with suppress(FileNotFoundError):  # another launch removes at the same moment
            metadata = _read_metadata(folder)
            if metadata is None:
                # Another launch is creating it, or a killed launch left it; or it is the file of a waiting job.
                if folder.is_dir() and time.time() - folder.stat().st_mtime > START_S:
                    shutil.rmtree(folder, ignore_errors=True)
            elif metadata.get("host") == platform.node() and (
                _find_process(metadata) is None or not _has_client(metadata)
            ):
                stop(folder)


def _locate_home(settings: Settings) -> Path:
    state_dir = parse_path(settings.state_dir) if settings.state_dir else options.get_state_dir()
    return options.mark_private(state_dir) / options.LAYOUT.engines


def _build_environment(settings: Settings, folder: Path) -> dict[str, str]:
    # By default IPython writes its profile to the user's home folder.
    folders = {options.STATE_DIR: str(folder.parent.parent), "IPYTHONDIR": str(folder / "ipython")}
    return {**inherit_variables(), **settings.environment, **folders, engine_process.MARK: str(folder)}


def _write_metadata(folder: Path, pid: int, settings: Settings) -> None:
    """Write the owner of an engine for later launches, without its key."""
    metadata = {
        "host": platform.node(),
        "pid": pid,
        "started": psutil.Process(pid).create_time(),
        "label": settings.label,
        "watch": settings.watch,
        "lifeline": None if settings.lifeline is None else asdict(settings.lifeline),
    }
    with write_atomically(folder / "about.json") as temporary:
        temporary.write_text(json.dumps(metadata))


def _read_metadata(folder: Path) -> dict[str, Any] | None:
    try:
        metadata: dict[str, Any] = validation.parse(_EngineMetadata, parse_json((folder / "about.json").read_text()))
    except (OSError, ValueError):
        return None
    return metadata


def _find_process(metadata: dict[str, Any]) -> psutil.Process | None:
    """Find the engine's process, unless it has ended and its pid belongs to another process by now."""
    with suppress(psutil.Error):
        process = psutil.Process(metadata["pid"])
        if abs(process.create_time() - metadata["started"]) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _has_client(metadata: dict[str, Any]) -> bool:
    """Return whether the client of an engine is still alive."""
    if metadata.get("watch"):
        return psutil.pid_exists(metadata["watch"])
    keepalive = metadata.get("lifeline")
    # An engine of a batch job notices a lost client by ipyparallel's heartbeat alone.
    return keepalive is None or bool(keepalive.is_answered())


def _wait_until_ready(receiver: int) -> bool:
    """Wait for the engine's ready message; return False if it ends or is too slow."""
    readable, _, _ = select.select([receiver], [], [], START_S)
    return bool(readable) and os.read(receiver, len(READY)) == READY


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _become_engine(file: Path) -> None:
    """Run the engine in this process, which a batch system has started and will end."""
    settings = Settings.from_json(file.read_bytes())
    file.unlink()
    home = _locate_home(settings)
    remove_leftovers(home)
    folder = home / file.stem
    folder.mkdir(mode=0o700)
    _write_metadata(folder, os.getpid(), settings)
    variables = _build_environment(settings, folder)
    os.environ.clear()
    os.environ.update(variables)
    engine_process.run_engine(settings, folder)


def main(arguments: list[str]) -> None:
    """Run one command line, and answer on the standard output."""
    os.umask(0o077)
    if arguments[:1] == ["--stop"]:
        stop(Path(arguments[1]))
        answer: dict[str, Any] = {}
    elif arguments[:1] == ["--attached"]:
        _become_engine(Path(arguments[1]))
        return
    else:
        try:
            launched = launch(Settings.from_json(sys.stdin.buffer.read()))
            answer = {"pid": launched.pid, "folder": str(launched.folder)}
        except (DeviceError, OSError) as error:
            answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
