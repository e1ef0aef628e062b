"""Sends `ngbkit.fleet.deployment.onsite` to a device, runs one of its verbs there, and returns the answer.

The device needs nothing but a Python: its standard input carries the modules as text, then a request, then files.
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
from ngbkit.cluster.launchers.base import quote_state_dir
from ngbkit.cluster.shell import join_words
from ngbkit.errors import DeviceError, UsageError
from ngbkit.user_text import clean_line

#: Receives lines of text; ``str`` discards them.
Report = Callable[[str], object]

_PACKAGE = "ngbkit.fleet.deployment.onsite"
_MODULES = ("folder", "install", "program")
# Valid also in Pythons that are too old for the modules, which import each other by the names that they have here.
_START = """
import json, sys, types
sources = json.loads(sys.stdin.buffer.read({length}).decode())
if sys.version_info < (3, 10):
    got = "{{}} there is Python {{}}".format(sys.executable, sys.version.split()[0])
    print(json.dumps({{"error": got + ", and ngbkit needs 3.10 or newer: install one there, and name it by --python "
                                     "or as `python` in the devices file"}}))
    sys.exit()
for name, source in sources:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""
# The Python of the deployed environment is new enough, unlike perhaps that of the system.
_DEFAULT = f'p={{state_dir}}/{options.LAYOUT.env}/bin/python; [ -x "$p" ] || p=python3; exec "$p" {{start}}'
_MAX_ANSWER_BYTES = 64 << 20
_MAX_LINE_BYTES = 4096
_END_S = 15.0
_NO_SUCH_PROGRAM = 127


def resolve(device: Device) -> Device:
    """Return the device with its state folder if it is this machine; refuse one that ngbkit does not deploy to."""
    if device.launch == "attach":
        raise UsageError(
            f"device {device.label} is an engine of a cluster of your own (launch = 'attach'), whose Python you "
            "maintain: `pip install ngbkit` there."
        )
    if device.launch == "local" and device.state_dir is None:
        return replace(device, state_dir=str(options.get_state_dir()))
    return device


def find_custom_python(device: Device) -> str | None:
    """Return the configured Python, unless it belongs to the deployed environment."""
    if device.python is None:
        return None
    env = PurePosixPath(device.python).parent.parent
    # Of a default folder on the device only its last name is known here.
    deployed = PurePosixPath(device.state_dir or "ngbkit") / options.LAYOUT.env
    is_deployed = env == deployed if device.state_dir else env.match(str(deployed))
    return None if is_deployed else device.python


def request(
    device: Device,
    verb: str,
    *,
    python: str | None = None,
    fields: Mapping[str, Any] | None = None,
    files: Sequence[Path] = (),
    report: Report = str,
) -> dict[str, Any]:
    """Run a verb of `ngbkit.fleet.deployment.onsite.program` on a resolved device; return the answer.

    It gets the fields and the files. `python` is by default the configured one, else that of the deployed environment,
    else ``python3``. `report` receives the output line by line.
    """
    python = python or find_custom_python(device)
    modules = [(f"{_PACKAGE}.{name}", f"{name}.py") for name in _MODULES]
    sources = json.dumps(
        [(name, (resources.files(_PACKAGE) / file).read_text("utf-8")) for name, file in modules]
    ).encode()
    start = f"-I -c {shlex.quote(_START.format(length=len(sources)))}"
    default = _DEFAULT.format(state_dir=quote_state_dir(device), start=start)
    program = f"exec {join_words([python])} {start}" if python else default
    line = {"verb": verb, "state_dir": device.state_dir, "variables": device.environment(), **(fields or {})}
    code, errors, output = _converse(device, program, sources + json.dumps(line).encode() + b"\n", files, report)
    if code == _NO_SUCH_PROGRAM:
        raise DeviceError(
            f"no {python or 'python3'} on {device.shell.machine} ({errors.strip()}): install Python 3.10 or newer "
            "there, or name one by --python or as `python` in the devices file."
        )
    if code:
        raise device.shell.explain(code, errors)
    # A start-up file or `setup` may print before it.
    answer = replies.parse(device.label, (output.strip().splitlines() or [""])[-1])
    if "error" in answer:
        lines = [clean_line(text) for text in str(answer["error"]).splitlines()] or ["unknown error"]
        raise DeviceError("\n".join([f"device {device.label}: {lines[0]}", *lines[1:30]]))
    return answer


def _converse(
    device: Device, program: str, stdin: bytes, files: Sequence[Path], report: Report
) -> tuple[int, str, str]:
    """Run a program on the device, and end it with this call; return its exit code, its last errors, its output."""
    last: deque[str] = deque(maxlen=20)
    # On this machine: this process's settings of Python are not for another one.
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
                _send(process.stdin, stdin, files)
            while line := process.stderr.readline(_MAX_LINE_BYTES):
                last.append(clean_line(line.decode(errors="replace").rstrip()))
                report(last[-1])
            process.wait()
        finally:
            _end(process)
        output.seek(0)
        return process.returncode, "\n".join(last), output.read(_MAX_ANSWER_BYTES).decode(errors="replace")


def _send(pipe: IO[bytes], stdin: bytes, files: Sequence[Path]) -> None:
    pipe.write(stdin)
    if files:
        with tarfile.open(fileobj=pipe, mode="w|") as stream:
            for file in files:
                stream.add(file, file.name)
    pipe.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, with some time to clean up, and close its pipes."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
    try:
        process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.communicate()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
