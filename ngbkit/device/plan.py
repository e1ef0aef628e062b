"""What an engine is asked to do: carry out a sweep's trials on this device, and hand over what its journal holds.

The client calls `hello`, `vitals`, `run` and `collect` by reference, with one JSON string, and gets one back, so that
no function and no object crosses between Python versions::

    view.apply_async(ipp.Reference("__import__('ngbkit.device.plan',fromlist=['_']).run"), spec_json)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.device import peaks, server_pool
from ngbkit.device.groups import Bench
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import occupied
from ngbkit.device.settings import child_settings
from ngbkit.device.spec import EVENT_MIME, FORMAT, Spec
from ngbkit.errors import DeviceError, FencedError, NgbkitError
from ngbkit.files import Store
from ngbkit.hardware import conditions, environment, telemetry
from ngbkit.hardware.accelerators import probing as accelerators
from ngbkit.sweep import records as record_format
from ngbkit.sweep.journal import Journal, decode

Publish = Callable[[dict[str, Any]], None]
# How long the work of others is watched for a look at the device, and how much of a log is told.
_LOOK_S, _LOG_BYTES = 0.2, 4000


def hello(spec_json: str = "{}") -> str:
    """Who answers: the handshake before a plan. The reply's formats must be the client's own."""
    del spec_json
    about = {
        "format": FORMAT,
        "record_format": record_format.FORMAT,
        "state_dir": str(options.state_dir()),
        "pid": os.getpid(),
    }
    return json.dumps({**about, "environment": environment.describe()})


def vitals(spec_json: str = "{}") -> str:
    """JSON of the device's conditions now (`ngbkit.hardware.conditions.look`), and of the end of this engine's log."""
    del spec_json
    return json.dumps({"looked": conditions.look(_LOOK_S), "log": _end_of_log()})


def warm(spec_json: str) -> str:
    """Start what a `Spec` will need, in JSON as for `run`, and measure nothing.

    It returns when all is there: imports that are still going on would be taken for other work on the device.
    """
    for server in server_pool.start(Spec.from_json(spec_json)):
        server.wait_until_ready()
    return "{}"


def run(spec_json: str) -> str:
    """Carry out the trials of a sweep that this device's journal has no record of.

    Parameters
    ----------
    spec_json
        A `Spec`, as JSON.

    Returns
    -------
    str
        JSON: ``state`` is ``"finished"``, ``"stopped"`` or ``"error"``; ``error`` and ``kind`` say what went wrong.
    """
    try:
        return json.dumps({"state": carry_out(Spec.from_json(spec_json), _numbered(_publisher()))})
    except NgbkitError as error:
        return json.dumps({"state": "error", "kind": type(error).__name__, "error": str(error)})


def carry_out(spec: Spec, publish: Publish) -> str:
    """Carry out a plan in this process, telling `publish` of every event; ``"finished"`` or ``"stopped"``."""
    # First: an interrupt while the journal is made would leave one without its tables, and its fence held.
    with Interrupt() as interrupt, Journal(journal_path(spec.state_dir, spec.device, spec.run_id)) as journal:
        if journal.salvaged is not None:
            publish(
                {"kind": "salvaged", "device": spec.device, "records": journal.salvaged, "journal": str(journal.path)}
            )
        if spec.retry and journal.notes("retried").get("last") != spec.retry_id:
            found = journal.statuses()
            journal.forget([trial_id for trial_id, status in found.items() if status in spec.retry])
            journal.note("retried", "last", spec.retry_id)
        bench = Bench(spec=spec, journal=journal, interrupt=interrupt.descriptor, publish=publish)
        try:
            with occupied(lock_path(spec.state_dir, spec.device), spec.run_id, interrupt.descriptor, bench.wait_for):
                _measure(spec, bench)
        except InterruptedError:
            return "stopped"
    return "finished"


def _measure(spec: Spec, bench: Bench) -> None:
    surroundings = _surroundings(spec, bench.threads)
    bench.note("environment", spec.device, surroundings)
    bench.warm_servers()
    for group in spec.sweep.groups(spec.device):
        bench.measure(group)
    bench.note("environment", spec.device, {**surroundings, "conditions_after": conditions.look()})


def collect(spec_json: str) -> str:
    """Records of a run that the client does not have yet.

    Parameters
    ----------
    spec_json
        ``run_id``, ``device``, ``state_dir``; ``have``: the ids of the trials that the client has; ``most``: how many
        to hand over.

    Returns
    -------
    str
        JSON: ``records``; ``more`` is true where others are left; ``facts`` and ``environment`` of the run.
    """
    data = json.loads(spec_json)
    path = journal_path(Path(data["state_dir"]), data["device"], data["run_id"])
    if not path.exists():
        return json.dumps({"records": [], "more": False, "facts": {}, "environment": {}})
    have, most = set(data["have"]), int(data["most"])
    with contextlib.suppress(FencedError):
        Journal(path).close()  # opened for writing, a damaged journal is repaired
    with Journal(path, writable=False) as journal:
        missing = [trial_id for trial_id in journal.statuses() if trial_id not in have]
        wanted = set(missing[:most])
        found = [record_format.to_json(decode(row)) for row in journal.rows() if row[0] in wanted]
        notes = {kind: journal.notes(kind) for kind in ("facts", "environment")}
    return json.dumps({"records": found, "more": len(missing) > most, **notes})


def missing(spec_json: str) -> str:
    """Which artifacts are not on this device: ``state_dir`` and ``digests`` in, ``missing`` out."""
    data = json.loads(spec_json)
    store = Store(Path(data["state_dir"]) / "artifacts")
    return json.dumps({"missing": [digest for digest in data["digests"] if not store.have(digest)]})


def receive(spec_json: str, chunk: bytes) -> str:
    """Take in a piece of an artifact, number 0 first: ``state_dir``, ``digest``, ``number``."""
    data = json.loads(spec_json)
    part = _part(data)
    part.parent.mkdir(parents=True, exist_ok=True)
    with open(part, "wb" if data["number"] == 0 else "ab") as write:
        write.write(chunk)
    return "{}"


def received(spec_json: str) -> str:
    """Put an artifact whose pieces have all come in its place, if it has the hash it was announced with."""
    data = json.loads(spec_json)
    part = _part(data)
    with open(part, "rb") as read:
        Store(Path(data["state_dir"]) / "artifacts").receive(data["digest"], iter(lambda: read.read(1 << 20), b""))
    part.unlink()
    with contextlib.suppress(OSError):  # another is on its way
        part.parent.rmdir()
    return "{}"


def _surroundings(spec: Spec, threads: int) -> dict[str, Any]:
    """What is measured on, and under what conditions: all that a reader of the numbers would ask."""
    about = environment.describe()
    looked = conditions.look()
    return {
        **about,
        "accelerator": spec.accelerator,
        **_accelerator(spec.accelerator),
        "child_settings": child_settings(threads),
        "conditions": {**looked, "warnings": conditions.warnings(looked, threads)},
        "peaks": _peaks(spec, threads),
        "selfcheck": _selfcheck(spec, about["chip"], threads),
    }


def _accelerator(accelerator: str) -> dict[str, Any]:
    """What is known of the chip beside the CPU, and why nothing is read from it where there should be something."""
    found: dict[str, Any] = {}
    chip = telemetry.open(accelerator)
    if chip is not None:
        found["telemetry"] = chip.describe()
    elif problem := telemetry.lacks(accelerator):
        found["telemetry"] = {"problem": problem}
    if accelerator != "cpu":
        found["gpu"] = accelerators.describe()
    return found


def _peaks(spec: Spec, threads: int) -> dict[str, Any]:
    """The most that this device can do, measured once; without it there is no roofline, and everything else."""
    try:
        return asdict(peaks.load_or_measure(spec.state_dir, threads))
    except (DeviceError, OSError):
        return {}


def _selfcheck(spec: Spec, chip: str, threads: int) -> dict[str, Any]:
    """The last self-check of this device; empty where there was none, or it was of another chip or other threads."""
    try:
        found: dict[str, Any] = json.loads((spec.state_dir / "selfcheck" / f"{spec.device}.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if (found.get("chip"), found.get("threads")) == (chip, threads) else {}


def _part(data: dict[str, Any]) -> Path:
    return Store(Path(data["state_dir"]) / "incoming").path(data["digest"])


def journal_path(state_dir: Path, device: str, run_id: str) -> Path:
    """Where a device keeps its journal of a run."""
    return state_dir / "devices" / device / f"{run_id}.sqlite"


def lock_path(state_dir: Path, device: str) -> Path:
    """What a plan holds while it measures on a device."""
    return state_dir / "devices" / device / "lock"


def _publisher() -> Publish:
    """How events leave this process: as display data of the engine's kernel; nowhere outside one."""
    try:
        from ipykernel.zmqshell import ZMQInteractiveShell
    except ImportError:
        return _drop
    if not ZMQInteractiveShell.initialized():
        return _drop
    display = ZMQInteractiveShell.instance().display_pub
    return lambda event: display.publish({EVENT_MIME: event})


def _drop(event: dict[str, Any]) -> None:
    del event


def _numbered(publish: Publish) -> Publish:
    count = 0

    def numbered(event: dict[str, Any]) -> None:
        nonlocal count
        publish({"n": count, **event})
        count += 1

    return numbered


def _end_of_log() -> str:
    """The last of what this engine has printed, where that goes to a file."""
    try:
        with Path("/proc/self/fd/2").readlink().open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")
    except OSError:  # a terminal, a pipe, a file that was deleted
        return ""
