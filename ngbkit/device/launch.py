"""Start an engine on the machine that this runs on, after removing what an earlier client has left there.

Run as ``python -m ngbkit.device.launch`` on a device, which reads an engine's `Settings` on the standard input, and
answers with one line of JSON: ``pid`` and ``folder`` of an engine that has registered with its controller, or ``error``
and the end of its ``log``. ``--stop FOLDER`` ends that engine; ``--attached FILE`` becomes the engine itself, told by a
file that is removed, as a batch system wants it.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ngbkit import options
from ngbkit.device import engine as engine_process
from ngbkit.device.engine import READY, Settings
from ngbkit.device.keepalive import Lifeline
from ngbkit.errors import DeviceError
from ngbkit.files import replacing

START_S = 60.0
_LOG_BYTES = 4000
_END_S = 2.0
# Engines that this very process has started, by their folder: it is the one to ask what became of them.
_children: dict[Path, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A running engine.

    Parameters
    ----------
    pid
        Its process, which leads a group of its own.
    folder
        Where it keeps its profile and its log.
    """

    pid: int
    folder: Path


def launch(settings: Settings) -> Launched:
    """Start an engine here, and wait until it has registered with its controller.

    Raises
    ------
    DeviceError
        It ended, or did not register in time; the message holds the end of its log.
    """
    home = _home(settings)
    clean(home)
    folder = home / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    log = folder / "engine.log"
    heard, ready = os.pipe()
    process = None
    try:
        with open(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "ngbkit.device.engine", str(folder), str(ready)],
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[ready],
                env=_environment(settings, folder),
            )
        os.close(ready)
        ready = -1
        _note(folder, process.pid, settings)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(settings.to_json().encode())
        registered = _hears(heard)
    except BaseException:
        if process is not None:
            _kill(process.pid)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(heard)
        if ready >= 0:
            os.close(ready)
    if registered:
        _children[folder] = process
        return Launched(pid=process.pid, folder=folder)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)  # it lets go of its pipe a little before it has ended
    ended = process.poll()
    _kill(process.pid)
    process.wait()
    said = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace").strip()
    shutil.rmtree(folder, ignore_errors=True)
    how = f"ended with {ended}" if ended is not None else f"did not reach its controller in {START_S:g} s"
    raise DeviceError(f"the engine {how}; its log says:\n{said or '(nothing)'}")


def lives(folder: Path) -> bool:
    """Whether the engine that keeps its files in `folder` runs."""
    about = _about(folder)
    return about is not None and _process(about) is not None


def stop(folder: Path) -> None:
    """End the engine that keeps its files in `folder`, and remove them; nothing where it has gone already."""
    about = _about(folder)
    if about is not None and (process := _process(about)) is not None:
        _kill(process.pid)
        psutil.wait_procs([process], timeout=10)
    child = _children.pop(folder, None)
    if child is not None:
        if child.poll() is None:  # its folder was deleted behind our back, and what it says with it
            _kill(child.pid)
        child.wait()
    engine_process.tidy(folder, -1 if about is None else about["pid"])


def clean(home: Path) -> None:
    """Remove what engines have left that are gone, and engines whose client is gone; leave those of living clients.

    Of a folder that several machines share, each sees to its own.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in home.iterdir():
        with suppress(FileNotFoundError):  # another launch cleans at the same moment
            about = _about(folder)
            if about is None:
                # Being made by another launch, or left by one that was killed; or the file of a job that waits.
                if folder.is_dir() and time.time() - folder.stat().st_mtime > START_S:
                    shutil.rmtree(folder, ignore_errors=True)
            elif about.get("host") == platform.node() and (_process(about) is None or not _wanted(about)):
                stop(folder)


def _home(settings: Settings) -> Path:
    state_dir = Path(settings.state_dir).expanduser() if settings.state_dir else options.state_dir()
    return state_dir / "engines"


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    # IPython keeps a profile in the home folder of whoever does not tell it otherwise.
    places = {"NGBKIT_STATE_DIR": str(folder.parent.parent), "IPYTHONDIR": str(folder / "ipython")}
    return {**os.environ, **settings.environment, **places}


def _note(folder: Path, pid: int, settings: Settings) -> None:
    """Whose engine it is, for whoever comes after; the key is not part of it."""
    line = settings.lifeline
    about = {
        "host": platform.node(),
        "pid": pid,
        "started": psutil.Process(pid).create_time(),
        "label": settings.label,
        "watch": settings.watch,
        "lifeline": None if line is None else {"host": line.host, "port": line.port, "token": line.token},
    }
    with replacing(folder / "about.json") as temporary:
        temporary.write_text(json.dumps(about))


def _about(folder: Path) -> dict[str, Any] | None:
    try:
        about: dict[str, Any] = json.loads((folder / "about.json").read_text())
    except (OSError, ValueError):
        return None
    return about


def _process(about: dict[str, Any]) -> psutil.Process | None:
    """The engine's process, unless it is gone and its number belongs to another by now."""
    with suppress(psutil.Error):
        process = psutil.Process(about["pid"])
        if abs(process.create_time() - about["started"]) < 1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _wanted(about: dict[str, Any]) -> bool:
    """Whether the client of an engine is still there."""
    if about.get("watch"):
        return psutil.pid_exists(about["watch"])
    line = about.get("lifeline")
    # An engine of a batch job knows of its client by ipyparallel's heartbeat alone.
    return line is None or Lifeline(**line).answers()


def _hears(heard: int) -> bool:
    """Whether the engine says that it is ready, before it ends or takes too long."""
    came, _, _ = select.select([heard], [], [], START_S)
    return bool(came) and os.read(heard, len(READY)) == READY


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _attach(told: Path) -> None:
    """Be the engine, in the process that a batch system started and will end."""
    settings = Settings.from_json(told.read_bytes())
    told.unlink()
    home = _home(settings)
    clean(home)
    folder = home / told.stem
    folder.mkdir(mode=0o700)
    _note(folder, os.getpid(), settings)
    os.environ.update(_environment(settings, folder))
    engine_process.be(settings, folder)


def main(arguments: list[str]) -> None:
    """Carry out one command line, and answer on the standard output."""
    os.umask(0o077)
    if arguments[:1] == ["--stop"]:
        stop(Path(arguments[1]))
        answer: dict[str, Any] = {}
    elif arguments[:1] == ["--attached"]:
        _attach(Path(arguments[1]))
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
