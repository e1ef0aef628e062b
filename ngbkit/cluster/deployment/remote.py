"""Send `ngbkit.cluster.deployment.onsite` to a device, have it do one thing there, and bring back its answer.

A Python is all that the device needs: the modules come as text on its standard input, then a question, then files.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ngbkit import options
from ngbkit.cluster import replies
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers.base import state_dir
from ngbkit.cluster.shell import words
from ngbkit.errors import DeviceError, UsageError

Say = Callable[[str], None]

_PACKAGE = "ngbkit.cluster.deployment.onsite"
_MODULES = ("folder", "install", "holdings", "program")
# Read also by Pythons that are too old for the modules, which import each other by the names that they have here.
_START = """
import json, sys, types
sources = json.loads(sys.stdin.buffer.read({length}).decode())
if sys.version_info < (3, 10):
    found = "{{}} there is Python {{}}".format(sys.executable, sys.version.split()[0])
    print(json.dumps({{"error": found + ", and ngbkit needs 3.10 or newer: install one there, and name it by --python "
                                       "or as `python` in the devices file"}}))
    sys.exit()
for name, source in sources:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""
# What was deployed is of a Python that is new enough, which that of the system may not be.
_DEFAULT = 'p={state_dir}/env/bin/python; [ -x "$p" ] || p=python3; exec "$p" {start}'
_MOST_ANSWER_BYTES = 64 << 20
_MOST_LINE_BYTES = 4096
_LEAVE_S = 15.0
_NO_SUCH_PROGRAM = 127


def nobody(line: str) -> None:
    """Whom nothing is told."""
    del line


def settled(device: Device) -> Device:
    """The device, with its folder where that is known here.

    Raises
    ------
    UsageError
        It is none that ngbkit installs anything on.
    """
    if device.launch == "attach":
        raise UsageError(
            f"device {device.label} is an engine of a cluster of your own (launch = 'attach'), whose Python is yours "
            "to look after: `pip install ngbkit` there."
        )
    if device.launch == "local" and device.state_dir is None:
        return replace(device, state_dir=str(options.state_dir()))
    return device


def own_python(device: Device) -> str | None:
    """The Python that the devices file names, unless it is that of the environment that deploy makes."""
    if device.python is None:
        return None
    env = PurePosixPath(device.python).parent.parent
    # Where the folder is the default one over there, its name is all that is known of it here.
    is_deployed = env == PurePosixPath(device.state_dir) / "env" if device.state_dir else env.match("ngbkit/env")
    return None if is_deployed else device.python


def carry(
    device: Device,
    verb: str,
    *,
    python: str | None = None,
    told: Mapping[str, Any] | None = None,
    files: Sequence[Path] = (),
    say: Say = nobody,
) -> dict[str, Any]:
    """Have something done on a device; the answer.

    Parameters
    ----------
    device
        Where: see `settled`.
    verb
        What: see `ngbkit.cluster.deployment.onsite.program`.
    python
        By which Python. Default: the one that the devices file names, else that of the environment that was deployed,
        else ``python3``.
    told, files
        What it is told and given.
    say
        Takes what is said meanwhile, line by line.

    Raises
    ------
    DeviceError
        The device cannot be reached, or it could not be done; the message says why.
    """
    named = python or own_python(device)
    names = [(f"{_PACKAGE}.{name}", f"{name}.py") for name in _MODULES]
    sources = json.dumps(
        [(name, (resources.files(_PACKAGE) / file).read_text("utf-8")) for name, file in names]
    ).encode()
    start = f"-I -c {shlex.quote(_START.format(length=len(sources)))}"
    program = f"exec {words([named])} {start}" if named else _DEFAULT.format(state_dir=state_dir(device), start=start)
    request = {"verb": verb, "state_dir": device.state_dir, "variables": device.environment(), **(told or {})}
    code, said, answered = _converse(device, program, sources + json.dumps(request).encode() + b"\n", files, say)
    if code == _NO_SUCH_PROGRAM:
        raise DeviceError(
            f"there is no {named or 'python3'} on {device.shell.where} ({said.strip()}): install Python 3.10 or newer "
            "there, or name one by --python or as `python` in the devices file."
        )
    if code:
        raise device.shell.explain(code, said)
    # What a start-up file or `setup` prints comes before it.
    answer = replies.read(device.label, (answered.strip().splitlines() or [""])[-1])
    if "error" in answer:
        lines = [replies.plain(line) for line in str(answer["error"]).splitlines()]
        raise DeviceError("\n".join([f"device {device.label}: {lines[0] if lines else 'it failed'}", *lines[1:30]]))
    return answer


def _converse(device: Device, program: str, given: bytes, files: Sequence[Path], say: Say) -> tuple[int, str, str]:
    """Run a program there, and end it where this is ended: its exit code, its last words, its output."""
    last: deque[str] = deque(maxlen=20)
    # On this machine: what this process is told about its own Python is not for that one.
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryFile() as output:
        process = device.shell.start(
            program,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            env=None if device.host else inherited,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            with suppress(BrokenPipeError):
                _send(process.stdin, given, files)
            while line := process.stderr.readline(_MOST_LINE_BYTES):
                last.append(replies.plain(line.decode(errors="replace").rstrip()))
                say(last[-1])
            process.wait()
        finally:
            _leave(process)
        output.seek(0)
        return process.returncode, "\n".join(last), output.read(_MOST_ANSWER_BYTES).decode(errors="replace")


def _send(pipe: IO[bytes], given: bytes, files: Sequence[Path]) -> None:
    pipe.write(given)
    if files:
        with tarfile.open(fileobj=pipe, mode="w|") as stream:
            for file in files:
                stream.add(file, file.name)
    pipe.flush()


def _leave(process: subprocess.Popen[bytes]) -> None:
    """Let go of a program; one that has not ended is told to, and has some time to clean up."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
    try:
        process.communicate(timeout=_LEAVE_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.communicate()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
