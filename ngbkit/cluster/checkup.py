"""Checks each device before anything is measured there: is it reachable, and does it have a compatible ngbkit?"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ngbkit import registry
from ngbkit.cluster.attach import attach
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers.base import build_python_command
from ngbkit.cluster.shell import Shell, join_words
from ngbkit.device.spec import FORMAT
from ngbkit.errors import DeviceError
from ngbkit.hardware.environment import format_cores
from ngbkit.sweep import records
from ngbkit.user_text import clean_line
from ngbkit.workloads.subprocesses import SAFE_PATH, build_python_path

_OLDEST_PYTHON = (3, 10)
# Marks our lines among the output of a login shell and of `setup`.
_MARK = "ngbkit-checkup:"
# Launchers that submit jobs from a login node.
_BATCH = ("slurm", "array")
_NO_SBATCH, _ENDED = "no sbatch", "it ended with "
# Any Python can run it, however old. It tries the cores of the engine and reports those that it got.
_PROGRAM = """
import json, os, sys
report = {"python": sys.version.split()[0]}
try:
    os.sched_setaffinity(0, [int(core) for core in sys.argv[1:]] or os.sched_getaffinity(0))
    report["cores"] = sorted(os.sched_getaffinity(0))
except (AttributeError, EnvironmentError):
    report["cores"] = []
try:
    import ngbkit
    from ngbkit.device import spec
    from ngbkit.sweep import records
    report.update(ngbkit=ngbkit.__version__, formats=[spec.FORMAT, records.FORMAT])
except Exception as error:
    report["why"] = "%s: %s" % (type(error).__name__, error)
"""
_PROGRAM = f'{SAFE_PATH}{_PROGRAM}print("{_MARK}" + json.dumps(report))'


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFinding:
    """The result of the check of a device, which is fit to measure on if `problem` is empty."""

    device: str
    # None if only a start would show it: the launcher is of another package.
    reachable: bool | None
    # The system and architecture; this and the versions are "" if unknown.
    machine: str = ""
    python: str = ""
    ngbkit: str = ""
    # With a remedy.
    problem: str = ""


def check(devices: Iterable[Device]) -> list[DeviceFinding]:
    """Check the devices, all at once."""
    devices = list(devices)
    with ThreadPoolExecutor(max_workers=max(1, len(devices)), thread_name_prefix="ngbkit-checkup") as pool:
        return list(pool.map(_check, devices))


def _check(device: Device) -> DeviceFinding:
    try:
        registry.load(registry.LAUNCHERS, device.launch)
    except Exception as error:  # noqa: BLE001  a plugin may raise anything
        problem = f"cannot load the launcher {device.launch!r}: {_clean(repr(error))}"
        return DeviceFinding(device=device.label, reachable=None, problem=problem)
    if device.launch == "attach":
        return _check_engine(device)
    if device.launch not in ("local", "ssh", *_BATCH):
        return DeviceFinding(device=device.label, reachable=None)
    try:
        # The lines of `setup` run in their own shell: if they end it, the machine is still reachable.
        output = Shell(host=device.host).run(
            f'echo "{_MARK}$(uname -sm)"; sh -c {shlex.quote(_build_script(device))} 2>&1 || echo "{_MARK}{_ENDED}$?"'
        )
    except DeviceError as error:
        return DeviceFinding(device=device.label, reachable=False, problem=_clean(str(error)))
    return _parse(device, output)


def _build_script(device: Device) -> str:
    """Build the script that runs on the device."""
    cores = [] if device.launch in _BATCH else map(str, device.cores or ())  # a job's cores are not the login node's
    lines = [device.setup]
    if device.launch in _BATCH:
        lines.append(f"command -v sbatch >/dev/null || echo '{_MARK}{_NO_SBATCH}'")
    if device.launch != "local":
        lines.append(build_python_command(device, "-c", _PROGRAM, *cores))
    else:
        if device.python is None and not device.setup:
            lines.append(f"export PYTHONPATH={shlex.quote(build_python_path())}")
        lines.append(join_words([device.python or sys.executable, "-c", _PROGRAM, *cores]))
    return "\n".join(lines)


def _parse(device: Device, output: str) -> DeviceFinding:
    """Parse the output of the script."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    report = next(filter(None, map(_parse_object, marked)), {})
    if report:
        problem = _find_problem(device, report)
    else:
        ended = next((line for line in marked if line.startswith(_ENDED)), "no output")
        last = next((line for line in reversed(lines) if not line.startswith(_MARK)), "")
        name = f"its Python{f', {device.python},' if device.python else ''}{' or its `setup`' if device.setup else ''}"
        problem = f"{name} does not run ({': '.join(filter(None, [ended, last]))}): {_suggest_remedy(device)}"
    if _NO_SBATCH in marked:
        problem = f"{_NO_SBATCH} there: name a login node as `host`, or load its module in `setup`"
    return DeviceFinding(
        device=device.label,
        reachable=True,
        machine=_clean(marked[0] if marked else ""),
        python=_clean(str(report.get("python", ""))),
        ngbkit=_clean(str(report.get("ngbkit", ""))),
        problem=_clean(problem),
    )


def _find_problem(device: Device, report: dict[str, Any]) -> str:
    """Describe why that Python is unfit; return ``""`` if it is fit."""
    number = str(report.get("python"))
    if tuple(int(part) for part in number.split(".")[:2] if part.isdigit()) < _OLDEST_PYTHON:
        return f"Python {number} is too old, ngbkit needs 3.10: name another as `python`"
    if "ngbkit" not in report:
        return f"its Python has no working ngbkit ({report.get('why')}): {_suggest_remedy(device)}"
    if report.get("formats") != [FORMAT, records.FORMAT]:
        return f"ngbkit {report['ngbkit']} there is incompatible with the one here: {_suggest_remedy(device)}"
    cores = report.get("cores")
    missing = set(device.cores or ()) - set(cores if isinstance(cores, list) else ())
    if missing and device.launch not in _BATCH:
        return f"it has no core {format_cores(sorted(missing))}: correct `cores`"
    return ""


def _suggest_remedy(device: Device) -> str:
    if device.launch == "local":
        return "name another as `python`, or install ngbkit in it"
    return f"run `ngbkit deploy {device.label}`"


def _check_engine(device: Device) -> DeviceFinding:
    try:
        engine = attach(device.cluster or "", device.label, target=device.target)
    except Exception as error:  # noqa: BLE001  ipyparallel reports a missing cluster in many ways
        return DeviceFinding(device=device.label, reachable=False, problem=_clean(str(error) or repr(error)))
    try:
        environment = engine.hello()
    except DeviceError as error:
        return DeviceFinding(device=device.label, reachable=True, problem=_clean(str(error)))
    finally:
        engine.view.client.close()
    system = str(environment.get("system", "")).partition(" ")[0]
    packages = environment.get("packages")
    return DeviceFinding(
        device=device.label,
        reachable=True,
        machine=_clean(f"{system} {environment.get('architecture', '')}"),
        python=_clean(str(environment.get("python", ""))),
        ngbkit=_clean(str(packages.get("ngbkit", ""))) if isinstance(packages, dict) else "",
    )


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _clean(text: str) -> str:
    """Return foreign text on one line, without control characters or surrounding blanks."""
    return " ".join(clean_line(text).split())
