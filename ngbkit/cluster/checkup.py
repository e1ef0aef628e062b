"""A look at each device before anything is measured there: is it reached, and has it an ngbkit that fits this one?"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ngbkit import registry
from ngbkit.cluster import replies
from ngbkit.cluster.attach import attach
from ngbkit.cluster.devices import Device, write_cores
from ngbkit.cluster.hub import python_path
from ngbkit.cluster.launchers.base import python
from ngbkit.cluster.shell import Shell, words
from ngbkit.device.spec import FORMAT
from ngbkit.errors import DeviceError
from ngbkit.sweep import records

_OLDEST = (3, 10)
# The lines that are ours among what a login shell and `setup` print.
_MARK = "ngbkit-checkup:"
_NO_SBATCH, _ENDED = "there is no sbatch", "it ended with "
# Understood by any Python, however old. The cores that the engine is to have are tried, and those told that it got.
_PROGRAM = """
import json, os, sys
told = {"python": sys.version.split()[0]}
try:
    os.sched_setaffinity(0, [int(core) for core in sys.argv[1:]] or os.sched_getaffinity(0))
    told["cores"] = sorted(os.sched_getaffinity(0))
except (AttributeError, EnvironmentError):
    told["cores"] = []
try:
    import ngbkit
    from ngbkit import records
    from ngbkit.device import spec
    told.update(ngbkit=ngbkit.__version__, formats=[spec.FORMAT, records.FORMAT])
except Exception as error:
    told["why"] = "%s: %s" % (type(error).__name__, error)
"""
_PROGRAM += f'print("{_MARK}" + json.dumps(told))'


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a look at a device found.

    Parameters
    ----------
    device
        Its label.
    reachable
        Whether it answers. None: only a start would tell, with a launcher of another package.
    machine, python, ngbkit
        Its system and architecture, and the versions; ``""`` where there is none, or it is not known.
    problem
        Why nothing can be measured there, and what to do; ``""`` where it can.
    """

    device: str
    reachable: bool | None
    machine: str = ""
    python: str = ""
    ngbkit: str = ""
    problem: str = ""


def look(devices: Iterable[Device]) -> list[Finding]:
    """Look at the devices, at all of them at once."""
    found = list(devices)
    with ThreadPoolExecutor(max_workers=max(1, len(found)), thread_name_prefix="ngbkit-checkup") as pool:
        return list(pool.map(_look, found))


def _look(device: Device) -> Finding:
    try:
        registry.load(registry.LAUNCHERS, device.launch)
    except Exception as error:  # noqa: BLE001  a stranger's plugin may raise anything
        problem = f"the launcher {device.launch!r} does not load: {_line(repr(error))}"
        return Finding(device=device.label, reachable=None, problem=problem)
    if device.launch == "attach":
        return _look_at_engine(device)
    if device.launch not in ("local", "ssh", "slurm"):
        return Finding(device=device.label, reachable=None)
    try:
        # The lines of `setup` are run by a shell of their own: one that they end is not a machine that is not reached.
        said = Shell(host=device.host).run(
            f'echo "{_MARK}$(uname -sm)"; sh -c {shlex.quote(_script(device))} 2>&1 || echo "{_MARK}{_ENDED}$?"'
        )
    except DeviceError as error:
        return Finding(device=device.label, reachable=False, problem=_line(str(error)))
    return _read(device, said)


def _script(device: Device) -> str:
    """What is run on the device."""
    cores = [] if device.launch == "slurm" else map(str, device.cores or ())  # a job's cores are not the login node's
    lines = [device.setup]
    if device.launch == "slurm":
        lines.append(f"command -v sbatch >/dev/null || echo '{_MARK}{_NO_SBATCH}'")
    if device.launch != "local":
        lines.append(python(device, "-c", _PROGRAM, *cores))
    else:
        if device.python is None and not device.setup:
            lines.append(f"export PYTHONPATH={shlex.quote(python_path())}")
        lines.append(words([device.python or sys.executable, "-c", _PROGRAM, *cores]))
    return "\n".join(lines)


def _read(device: Device, said: str) -> Finding:
    """What the device's words say about it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    machine = ours[0] if ours else ""
    ended = next((line for line in ours if line.startswith(_ENDED)), "it said nothing")
    told = next(filter(None, map(_json, ours)), {})
    if told:
        problem = _problem(device, told)
    else:
        last = next((line for line in reversed(lines) if not line.startswith(_MARK)), "")
        what = f"its Python{f', {device.python},' if device.python else ''}{' or its `setup`' if device.setup else ''}"
        problem = f"{what} does not run ({': '.join(filter(None, [ended, last]))}): {_remedy(device)}"
    if _NO_SBATCH in ours:
        problem = f"{_NO_SBATCH} there: name a login node as `host`, or load its module in `setup`"
    return Finding(
        device=device.label,
        reachable=True,
        machine=_line(machine),
        python=_line(str(told.get("python", ""))),
        ngbkit=_line(str(told.get("ngbkit", ""))),
        problem=_line(problem),
    )


def _problem(device: Device, told: dict[str, Any]) -> str:
    """Why that Python will not do; ``""`` where it will."""
    if tuple(int(part) for part in str(told.get("python")).split(".")[:2] if part.isdigit()) < _OLDEST:
        return f"Python {told.get('python')} is too old, ngbkit needs 3.10: name another as `python`"
    if "ngbkit" not in told:
        return f"its Python has no ngbkit that works ({told.get('why')}): {_remedy(device)}"
    if told.get("formats") != [FORMAT, records.FORMAT]:
        return f"ngbkit {told['ngbkit']} there does not speak as the one here: {_remedy(device)}"
    got = told.get("cores")
    missing = set(device.cores or ()) - set(got if isinstance(got, list) else ())
    if missing and device.launch != "slurm":
        return f"it has no core {write_cores(sorted(missing))} to give: correct `cores`"
    return ""


def _remedy(device: Device) -> str:
    if device.launch == "local":
        return "name another as `python`, or install ngbkit in it"
    return f"run `ngbkit deploy {device.label}`"


def _look_at_engine(device: Device) -> Finding:
    try:
        engine = attach(device.cluster or "", device.label, target=device.target)
    except Exception as error:  # noqa: BLE001  ipyparallel has many ways to say that it found nothing
        return Finding(device=device.label, reachable=False, problem=_line(str(error) or repr(error)))
    try:
        about = engine.hello()
    except DeviceError as error:
        return Finding(device=device.label, reachable=True, problem=_line(str(error)))
    finally:
        engine.view.client.close()
    packages = about.get("packages")
    return Finding(
        device=device.label,
        reachable=True,
        machine=_line(f"{str(about.get('system', '')).partition(' ')[0]} {about.get('architecture', '')}".strip()),
        python=_line(str(about.get("python", ""))),
        ngbkit=_line(str(packages.get("ngbkit", ""))) if isinstance(packages, dict) else "",
    )


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _line(text: str) -> str:
    """Another's words, on one line."""
    return " ".join(replies.plain(text).split())
